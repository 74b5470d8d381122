-- Effects outside the database that the session context has: audit events. Row by row as in identity's outbox.
create table session.outbox (
    outbox_id uuid primary key,
    tenant_id text not null,
    kind text not null,
    payload jsonb not null,
    created_at timestamptz not null,
    due_at timestamptz not null,
    attempts integer not null default 0,
    fence uuid,
    dead_lettered_at timestamptz,
    last_error text
);
create index outbox_due_idx on session.outbox (due_at) where dead_lettered_at is null;

alter table session.outbox enable row level security;
alter table session.outbox force row level security;
create policy outbox_tenant on session.outbox to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy outbox_migrator on session.outbox to svc_session_migrator using (true);
grant insert on session.outbox to svc_session;

-- The relay works off every tenant's effects: it takes a lease on what is due.
create function session.outbox_claim(
    in_fence uuid, in_now timestamptz, in_lease_until timestamptz, in_limit integer, in_kinds text[]
)
returns table (outbox_id uuid, tenant_id text, kind text, payload jsonb, attempts integer, fence uuid)
language sql volatile security definer set search_path = '' as $$
    update session.outbox
    set fence = in_fence, due_at = in_lease_until, attempts = outbox.attempts + 1
    where outbox.outbox_id in (
        select due.outbox_id from session.outbox as due
        where due.dead_lettered_at is null and due.due_at <= in_now and due.kind = any(in_kinds)
        order by due.due_at
        limit in_limit
        for update skip locked
    )
    returning outbox.outbox_id, outbox.tenant_id, outbox.kind, outbox.payload, outbox.attempts, outbox.fence
$$;

-- The relay settles what it has claimed; a lost lease settles nothing.
create function session.outbox_settle(
    in_outbox_id uuid, in_fence uuid, in_state text, in_due_at timestamptz, in_error text, in_now timestamptz
)
returns void
language sql volatile security definer set search_path = '' as $$
    delete from session.outbox
    where outbox_id = in_outbox_id and fence = in_fence and in_state = 'delivered';
    update session.outbox
    set due_at = coalesce(in_due_at, due_at),
        dead_lettered_at = case when in_state = 'dead_lettered' then in_now end,
        last_error = in_error
    where outbox_id = in_outbox_id and fence = in_fence
$$;

-- What the relay shows as metrics: nothing but numbers.
create function session.outbox_stats(in_now timestamptz)
returns table (oldest_seconds double precision, pending bigint, dead_lettered bigint)
language sql stable security definer set search_path = '' as $$
    select
        -- Never below 0: the clocks of two processes differ.
        greatest(0, coalesce(extract(epoch from in_now - min(created_at) filter (where dead_lettered_at is null)), 0)),
        count(*) filter (where dead_lettered_at is null),
        count(*) filter (where dead_lettered_at is not null)
    from session.outbox
$$;

revoke execute on function
    session.outbox_claim(uuid, timestamptz, timestamptz, integer, text[]),
    session.outbox_settle(uuid, uuid, text, timestamptz, text, timestamptz),
    session.outbox_stats(timestamptz)
from public;
grant execute on function
    session.outbox_claim(uuid, timestamptz, timestamptz, integer, text[]),
    session.outbox_settle(uuid, uuid, text, timestamptz, text, timestamptz),
    session.outbox_stats(timestamptz)
to svc_session;
