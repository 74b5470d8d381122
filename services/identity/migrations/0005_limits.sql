-- Rate limits per client address, shared by all replicas (libs/ratelimit). Rows belong to addresses, not to tenants, so
-- row-level security does not apply. Unlogged: each request writes, and losing the rows in a crash only resets the limits.
create unlogged table identity.limits (
    limit_name text not null,
    -- An IPv4 address, an IPv6 /64 network, or another subject of a limit.
    subject text not null,
    -- Time of the next request at an even rate (GCRA). A row with a time in the past has no effect.
    theoretical_arrival_at timestamptz not null,
    -- Whether the last request was allowed.
    allowed boolean not null,
    constraint limits_pkey primary key (limit_name, subject)
)
-- No index on the time, and free space in each page, so that updates are HOT.
with (fillfactor = 50);

grant select, insert, update, delete on identity.limits to svc_identity;
