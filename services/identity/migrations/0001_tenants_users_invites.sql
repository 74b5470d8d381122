-- Tenants, their users and invites, and the outbox of the identity context.
--
-- Roles and the schema itself are made outside the migrations (deploy/postgres): the migrator owns the schema, the runtime
-- role `svc_identity` has no DDL and is confined to one tenant by row-level security. Security is forced for the owner too,
-- hence the `_migrator` policies: they are what lets the `security definer` functions below look across tenants.

create table identity.tenants (
    tenant_id text primary key,
    display_name text not null,
    status text not null,
    -- Rises at suspension; sessions made under an older one are dead.
    session_version bigint not null default 1,
    events_per_second integer,
    bytes_per_second integer,
    -- Rises at every change; an older record never overwrites a newer one elsewhere.
    version bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    constraint tenants_tenant_id_check check (tenant_id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    constraint tenants_status_check check (status in ('active', 'suspended'))
);

create table identity.users (
    user_id uuid primary key,
    tenant_id text not null constraint users_tenant_id_fkey references identity.tenants,
    -- As typed, for people; and as compared: trimmed, NFC, lower case, domain in its ASCII form.
    email text not null,
    email_key text not null,
    role text not null,
    status text not null,
    -- A PHC string; none until the invite is accepted.
    password_digest text,
    -- Rises at password change, reset and disable; sessions made under an older one are dead, but for the kept one.
    credential_version bigint not null default 1,
    kept_session_id uuid,
    version bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    constraint users_email_key unique (tenant_id, email_key),
    constraint users_role_check check (role in ('member', 'admin')),
    constraint users_status_check check (status in ('invited', 'active', 'disabled')),
    constraint users_password_digest_check check (status = 'invited' or password_digest is not null)
);

create table identity.invites (
    invite_id uuid primary key,
    tenant_id text not null constraint invites_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint invites_user_id_fkey references identity.users,
    role text not null,
    -- A pending invite past `expires_at` counts as expired; it is written down when another one takes its place.
    status text not null,
    -- SHA-256 of the token. None until a mail is about to be sent: each try to send makes a token of its own.
    digest bytea,
    expires_at timestamptz not null,
    created_at timestamptz not null,
    settled_at timestamptz,
    constraint invites_digest_key unique (digest),
    constraint invites_role_check check (role in ('member', 'admin')),
    constraint invites_status_check check (status in ('pending', 'accepted', 'expired', 'revoked'))
);
-- Two administrators who invite the same person at once: one of them wins.
create unique index invites_pending_key on identity.invites (user_id) where status = 'pending';
create index invites_tenant_idx on identity.invites (tenant_id, invite_id);

create table identity.outbox (
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
create index outbox_due_idx on identity.outbox (due_at) where dead_lettered_at is null;

alter table identity.tenants enable row level security;
alter table identity.tenants force row level security;
create policy tenants_tenant on identity.tenants to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy tenants_migrator on identity.tenants to svc_identity_migrator using (true);

alter table identity.users enable row level security;
alter table identity.users force row level security;
create policy users_tenant on identity.users to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy users_migrator on identity.users to svc_identity_migrator using (true);

alter table identity.invites enable row level security;
alter table identity.invites force row level security;
create policy invites_tenant on identity.invites to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy invites_migrator on identity.invites to svc_identity_migrator using (true);

alter table identity.outbox enable row level security;
alter table identity.outbox force row level security;
create policy outbox_tenant on identity.outbox to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy outbox_migrator on identity.outbox to svc_identity_migrator using (true);

grant select, insert, update on identity.tenants, identity.users, identity.invites to svc_identity;
grant insert on identity.outbox to svc_identity;

-- What must look across tenants. Each function names its reason; nobody but the runtime role may call one.

-- Login: the tenant comes from a header that nothing has proven yet.
create function identity.find_account(in_tenant_id text, in_email_key text)
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
    where users.tenant_id = in_tenant_id and users.email_key = in_email_key
$$;

-- Accepting an invite: the token itself says which tenant it belongs to.
create function identity.find_invite(in_digest bytea)
returns table (invite_id uuid, tenant_id text)
language sql stable security definer set search_path = '' as $$
    select invite_id, tenant_id from identity.invites where digest = in_digest
$$;

-- The operator's listing of all tenants.
create function identity.list_tenants(in_after text, in_limit integer)
returns setof identity.tenants
language sql stable security definer set search_path = '' as $$
    select * from identity.tenants where tenant_id > in_after order by tenant_id limit in_limit
$$;

-- The relay works off every tenant's effects: it takes a lease on what is due.
create function identity.outbox_claim(
    in_fence uuid, in_now timestamptz, in_lease_until timestamptz, in_limit integer, in_kinds text[]
)
returns table (outbox_id uuid, tenant_id text, kind text, payload jsonb, attempts integer, fence uuid)
language sql volatile security definer set search_path = '' as $$
    update identity.outbox
    set fence = in_fence, due_at = in_lease_until, attempts = outbox.attempts + 1
    where outbox.outbox_id in (
        select due.outbox_id from identity.outbox as due
        where due.dead_lettered_at is null and due.due_at <= in_now and due.kind = any(in_kinds)
        order by due.due_at
        limit in_limit
        for update skip locked
    )
    returning outbox.outbox_id, outbox.tenant_id, outbox.kind, outbox.payload, outbox.attempts, outbox.fence
$$;

-- The relay settles what it has claimed; a lost lease settles nothing.
create function identity.outbox_settle(
    in_outbox_id uuid, in_fence uuid, in_state text, in_due_at timestamptz, in_error text, in_now timestamptz
)
returns void
language sql volatile security definer set search_path = '' as $$
    delete from identity.outbox
    where outbox_id = in_outbox_id and fence = in_fence and in_state = 'delivered';
    update identity.outbox
    set due_at = coalesce(in_due_at, due_at),
        dead_lettered_at = case when in_state = 'dead_lettered' then in_now end,
        last_error = in_error
    where outbox_id = in_outbox_id and fence = in_fence
$$;

revoke execute on all functions in schema identity from public;
grant execute on all functions in schema identity to svc_identity;
grant select on identity.schema_migrations to svc_identity;
