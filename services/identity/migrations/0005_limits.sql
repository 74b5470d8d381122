-- Limits per source address, which all replicas share (libs/ratelimit). They are about addresses, not tenants, so there is
-- nothing for row-level security to tell apart. Unlogged: each request writes, and after a crash everybody begins anew.
create unlogged table identity.limits (
    limit_name text not null,
    -- An IPv4 address, an IPv6 network of 64 bits, or whatever else a limit counts.
    subject text not null,
    -- When everything that was let in would have been let in at an even pace; in the past, the row says nothing.
    even_until timestamptz not null,
    -- What the last request was told.
    admitted boolean not null,
    constraint limits_pkey primary key (limit_name, subject)
)
-- No index on the time, and room in each page: so an update stays in its page and touches no index.
with (fillfactor = 50);

grant select, insert, update, delete on identity.limits to svc_identity;
