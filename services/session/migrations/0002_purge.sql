-- Sessions that are over for longer than an audit needs them are deleted, in small batches. Across tenants: a purge is
-- about time, not about anybody's rows. Several replicas may purge at once; each skips what another one holds.
create index sessions_over_idx on session.sessions
    (least(expires_at, idle_expires_at, coalesce(revoked_at, 'infinity')));

create function session.purge(in_before timestamptz, in_limit integer)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with purged as (
        delete from session.sessions
        where session_id in (
            select over.session_id from session.sessions as over
            where least(over.expires_at, over.idle_expires_at, coalesce(over.revoked_at, 'infinity')) < in_before
            limit in_limit
            for update skip locked
        )
        returning 1
    )
    select count(*) from purged
$$;

revoke execute on function session.purge(timestamptz, integer) from public;
grant execute on function session.purge(timestamptz, integer) to svc_session;
