-- The outbox in a person's hands: what waits and what is parked can be seen, and be tried again; and the mail of an invite
-- waits for a suspended tenant to be resumed, since its token would be refused until then.

-- Whether a row is held back. A reset or a notice is not: the one is worked off to nothing, the other tells what was done.
create function identity.outbox_is_held(in_tenant_id text, in_kind text)
returns boolean
language sql stable set search_path = '' as $$
    select in_kind = 'mail_invite' and exists (
        select from identity.tenants where tenant_id = in_tenant_id and status = 'suspended'
    )
$$;

-- As before, but for what is held back. Called by `security definer` functions only.
create or replace function identity.outbox_claim(
    in_fence uuid, in_now timestamptz, in_lease_until timestamptz, in_limit integer, in_kinds text[]
)
returns table (outbox_id uuid, tenant_id text, kind text, payload jsonb, attempts integer, fence uuid)
language sql volatile security definer set search_path = '' as $$
    update identity.outbox
    set fence = in_fence, due_at = in_lease_until, attempts = outbox.attempts + 1
    where outbox.outbox_id in (
        select due.outbox_id from identity.outbox as due
        where due.dead_lettered_at is null
            and due.due_at <= in_now
            and due.kind = any(in_kinds)
            and not identity.outbox_is_held(due.tenant_id, due.kind)
        order by due.due_at
        limit in_limit
        for update skip locked
    )
    returning outbox.outbox_id, outbox.tenant_id, outbox.kind, outbox.payload, outbox.attempts, outbox.fence
$$;

-- As before, but what is held back is not late.
create or replace function identity.outbox_stats(in_now timestamptz)
returns table (oldest_seconds double precision, pending bigint, dead_lettered bigint)
language sql stable security definer set search_path = '' as $$
    select
        -- Never below 0: the clocks of two processes differ.
        greatest(0, coalesce(extract(epoch from in_now - min(created_at) filter (
            where dead_lettered_at is null and not identity.outbox_is_held(tenant_id, kind)
        )), 0)),
        count(*) filter (where dead_lettered_at is null),
        count(*) filter (where dead_lettered_at is not null)
    from identity.outbox
$$;

-- `svc-identity outbox list`: an operator looks at what does not move, whoever's it is. The payload stays here.
create function identity.outbox_list(in_limit integer)
returns table (
    outbox_id uuid,
    tenant_id text,
    kind text,
    state text,
    created_at timestamptz,
    due_at timestamptz,
    attempts integer,
    last_error text
)
language sql stable security definer set search_path = '' as $$
    select
        outbox_id, tenant_id, kind,
        case
            when dead_lettered_at is not null then 'dead_lettered'
            when identity.outbox_is_held(tenant_id, kind) then 'held'
            else 'pending'
        end,
        created_at, due_at, attempts, last_error
    from identity.outbox
    order by dead_lettered_at is null, created_at, outbox_id
    limit in_limit
$$;

-- `svc-identity outbox retry`: a parked row, or all of them, begin anew.
create function identity.outbox_retry(in_outbox_id uuid, in_now timestamptz)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with retried as (
        update identity.outbox
        set dead_lettered_at = null, due_at = in_now, attempts = 0
        where dead_lettered_at is not null and (in_outbox_id is null or outbox_id = in_outbox_id)
        returning 1
    )
    select count(*) from retried
$$;

revoke execute on function
    identity.outbox_is_held(text, text), identity.outbox_list(integer), identity.outbox_retry(uuid, timestamptz)
from public;
grant execute on function identity.outbox_list(integer), identity.outbox_retry(uuid, timestamptz) to svc_identity;
