-- What the relay shows as metrics: for how long the oldest effect has been waiting, how many wait, and how many a person must
-- look at.

-- It looks across tenants, since an outbox that does not move concerns them all; it returns nothing but numbers.
create function identity.outbox_stats(in_now timestamptz)
returns table (oldest_seconds double precision, pending bigint, dead_lettered bigint)
language sql stable security definer set search_path = '' as $$
    select
        -- Never below 0: the clocks of two processes differ.
        greatest(0, coalesce(extract(epoch from in_now - min(created_at) filter (where dead_lettered_at is null)), 0)),
        count(*) filter (where dead_lettered_at is null),
        count(*) filter (where dead_lettered_at is not null)
    from identity.outbox
$$;

revoke execute on function identity.outbox_stats(timestamptz) from public;
grant execute on function identity.outbox_stats(timestamptz) to svc_identity;
