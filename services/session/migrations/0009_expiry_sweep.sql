-- Sessions that run out are told of as audit events. Nobody asks anything when they do, so a sweep looks for them.

-- How far the sweep has come: one row, which whoever sweeps holds, so that each session is told of once by one replica.
create table session.expiry_sweep (
    one_row boolean primary key default true,
    told_until timestamptz not null,
    -- Of the sessions that ran out at that very time, those up to this one.
    told_session_id uuid not null,
    constraint expiry_sweep_one_row_check check (one_row)
);
-- What ran out before this migration stays untold.
insert into session.expiry_sweep (told_until, told_session_id) values (now(), 'ffffffff-ffff-ffff-ffff-ffffffffffff');

alter table session.expiry_sweep enable row level security;
alter table session.expiry_sweep force row level security;
create policy expiry_sweep_migrator on session.expiry_sweep to svc_session_migrator using (true);

-- The sweep: it is about time, not about anybody's rows. Tells of at most as many sessions as there are ids, with an audit
-- event each (libs/audit), and returns how many; none while another replica is at it. A session that is revoked was told of
-- by whoever did it. By the index of sessions that are over (0002).
create function session.tell_expired(in_now timestamptz, in_outbox_ids uuid[])
returns bigint
language plpgsql volatile security definer set search_path = '' as $$
declare
    -- The clocks of replicas differ: what ended by one may have been used by another just now.
    ended_by constant timestamptz := in_now - interval '1 minute';
    sweep session.expiry_sweep;
    ended record;
    told bigint := 0;
begin
    select * into sweep from session.expiry_sweep for update skip locked;
    if sweep.told_until is null or sweep.told_until >= ended_by then
        return 0;
    end if;
    for ended in
        select
            over.*,
            least(over.expires_at, over.idle_expires_at, coalesce(over.revoked_at, 'infinity')) as ended_at
        from session.sessions as over
        where least(over.expires_at, over.idle_expires_at, coalesce(over.revoked_at, 'infinity')) <= ended_by
            and (least(over.expires_at, over.idle_expires_at, coalesce(over.revoked_at, 'infinity')), over.session_id)
                > (sweep.told_until, sweep.told_session_id)
            and over.revoked_at is null
        order by ended_at, over.session_id
        limit cardinality(in_outbox_ids)
    loop
        told := told + 1;
        insert into session.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        values (
            in_outbox_ids[told],
            ended.tenant_id,
            'audit',
            jsonb_build_object(
                'tenant_exists', true,
                'name', 'session_expired',
                'occurred_at', ended.ended_at,
                'event', jsonb_build_object(
                    'event', 'session_expired',
                    'actor', jsonb_build_object('type', 'system'),
                    'about', case when ended.idle_expires_at < ended.expires_at then 'idle' else 'absolute' end,
                    'user_id', ended.user_id,
                    'session_id', ended.session_id,
                    'credential', left(encode(ended.digest, 'hex'), 8)
                )
            ),
            in_now,
            in_now
        );
        sweep.told_until := ended.ended_at;
        sweep.told_session_id := ended.session_id;
    end loop;
    if told < cardinality(in_outbox_ids) then
        sweep.told_until := ended_by;
        sweep.told_session_id := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    end if;
    update session.expiry_sweep set told_until = sweep.told_until, told_session_id = sweep.told_session_id;
    return told;
end
$$;

revoke execute on function session.tell_expired(timestamptz, uuid[]) from public;
grant execute on function session.tell_expired(timestamptz, uuid[]) to svc_session;
