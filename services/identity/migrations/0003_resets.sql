-- Password resets, and what password change and reset look up across tenants.

create table identity.resets (
    -- The outbox row that asked for it, so that a row that is worked off twice makes one reset.
    reset_id uuid primary key,
    tenant_id text not null constraint resets_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint resets_user_id_fkey references identity.users,
    status text not null,
    -- SHA-256 of the token; each try to send makes a token of its own.
    digest bytea not null,
    expires_at timestamptz not null,
    created_at timestamptz not null,
    settled_at timestamptz,
    constraint resets_digest_key unique (digest),
    constraint resets_status_check check (status in ('pending', 'used', 'replaced'))
);
-- One live reset a user; a newer one replaces it.
create unique index resets_pending_key on identity.resets (user_id) where status = 'pending';
create index resets_user_idx on identity.resets (user_id, created_at);

alter table identity.resets enable row level security;
alter table identity.resets force row level security;
create policy resets_tenant on identity.resets to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy resets_migrator on identity.resets to svc_identity_migrator using (true);
grant select, insert, update on identity.resets to svc_identity;

-- Listing by address and status.
create index users_tenant_idx on identity.users (tenant_id, user_id);

-- Password change: tenant and user come from headers that nothing has proven yet.
create function identity.find_account_by_id(in_tenant_id text, in_user_id uuid)
returns table (
    user_id uuid,
    role text,
    status text,
    password_digest text,
    credential_version bigint,
    kept_session_id uuid,
    user_version bigint,
    tenant_status text,
    session_version bigint,
    events_per_second integer,
    bytes_per_second integer,
    tenant_version bigint,
    email_key text
)
language sql stable security definer set search_path = '' as $$
    select
        users.user_id, users.role, users.status, users.password_digest, users.credential_version, users.kept_session_id,
        users.version, tenants.status, tenants.session_version, tenants.events_per_second, tenants.bytes_per_second,
        tenants.version, users.email_key
    from identity.users
    join identity.tenants using (tenant_id)
    where users.tenant_id = in_tenant_id and users.user_id = in_user_id
$$;

-- Reset request: the tenant comes from a header that nothing has proven yet. One constant write, whoever it is about: a
-- worker decides later whether there is anybody to mail.
create function identity.request_reset(in_outbox_id uuid, in_tenant_id text, in_email_key text, in_now timestamptz)
returns void
language sql volatile security definer set search_path = '' as $$
    insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
    values (in_outbox_id, in_tenant_id, 'mail_reset', jsonb_build_object('email_key', in_email_key), in_now, in_now)
$$;

-- Confirming a reset: the token itself says which tenant it belongs to.
create function identity.find_reset(in_digest bytea)
returns table (reset_id uuid, tenant_id text)
language sql stable security definer set search_path = '' as $$
    select reset_id, tenant_id from identity.resets where digest = in_digest
$$;

revoke execute on function
    identity.find_account_by_id(text, uuid), identity.request_reset(uuid, text, text, timestamptz), identity.find_reset(bytea)
from public;
grant execute on function
    identity.find_account_by_id(text, uuid), identity.request_reset(uuid, text, text, timestamptz), identity.find_reset(bytea)
to svc_identity;
