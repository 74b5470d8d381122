-- Failed attempts at a password. An account is named by an HMAC of tenant and address, so that one that does not exist counts
-- like one that does; there is no tenant's row behind it, hence no row-level security.

-- By account and source address: how long to wait until the next attempt. Unlogged, since it says nothing after a day.
create unlogged table identity.attempts (
    account_key bytea not null,
    source text not null,
    failures integer not null,
    waits_until timestamptz not null,
    -- A day after the first of these failures; then it begins anew.
    expires_at timestamptz not null,
    -- What the last attempt was told.
    admitted boolean not null,
    constraint attempts_pkey primary key (account_key, source)
)
with (fillfactor = 50);

-- By account alone: failures in a row, from anywhere. Logged, since a crash must not unlock what is locked.
create table identity.failures (
    account_key bytea not null,
    in_a_row integer not null,
    last_failed_at timestamptz not null,
    constraint failures_pkey primary key (account_key)
)
with (fillfactor = 50);

grant select, insert, update, delete on identity.attempts, identity.failures to svc_identity;
