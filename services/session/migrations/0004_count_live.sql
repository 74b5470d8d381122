-- How many sessions live, for the metrics. Across tenants: it returns nothing but a number. By the index of those that are over,
-- so that it costs what there is to count.
create function session.count_live(in_now timestamptz)
returns bigint
language sql stable security definer set search_path = '' as $$
    select count(*) from session.sessions
    where least(expires_at, idle_expires_at, coalesce(revoked_at, 'infinity')) > in_now
$$;

revoke execute on function session.count_live(timestamptz) from public;
grant execute on function session.count_live(timestamptz) to svc_session;
