-- Sessions, and the projection of each user's and tenant's standing that decides whether they live.
--
-- Roles and the schema itself are made outside the migrations (deploy/postgres). Row-level security confines the runtime
-- role `svc_session` to one tenant; it is forced for the owner too, hence the `_migrator` policies, which are what lets the
-- `security definer` functions below look across tenants.

-- identity is the source of both; an older version never overwrites a newer one.
create table session.tenants (
    tenant_id text primary key,
    status text not null,
    session_version bigint not null,
    events_per_second integer,
    bytes_per_second integer,
    producers jsonb not null,
    version bigint not null,
    constraint tenants_status_check check (status in ('active', 'suspended'))
);

create table session.subjects (
    user_id uuid primary key,
    tenant_id text not null,
    role text not null,
    status text not null,
    credential_version bigint not null,
    kept_session_id uuid,
    version bigint not null,
    constraint subjects_role_check check (role in ('member', 'admin')),
    constraint subjects_status_check check (status in ('invited', 'active', 'disabled'))
);

create table session.sessions (
    session_id uuid primary key,
    tenant_id text not null constraint sessions_tenant_id_fkey references session.tenants,
    user_id uuid not null constraint sessions_user_id_fkey references session.subjects,
    -- SHA-256 of the token; the token itself is never stored.
    digest bytea not null,
    method text not null,
    -- The standing that the session was made under.
    credential_version bigint not null,
    session_version bigint not null,
    ip text,
    user_agent text,
    created_at timestamptz not null,
    last_seen_at timestamptz not null,
    idle_seconds integer not null,
    idle_expires_at timestamptz not null,
    expires_at timestamptz not null,
    revoked_at timestamptz,
    constraint sessions_digest_key unique (digest),
    constraint sessions_method_check check (method in ('password', 'device'))
);
create index sessions_user_idx on session.sessions (user_id, session_id);

alter table session.tenants enable row level security;
alter table session.tenants force row level security;
create policy tenants_tenant on session.tenants to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy tenants_migrator on session.tenants to svc_session_migrator using (true);

alter table session.subjects enable row level security;
alter table session.subjects force row level security;
create policy subjects_tenant on session.subjects to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy subjects_migrator on session.subjects to svc_session_migrator using (true);

alter table session.sessions enable row level security;
alter table session.sessions force row level security;
create policy sessions_tenant on session.sessions to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy sessions_migrator on session.sessions to svc_session_migrator using (true);

grant select, insert, update on session.tenants, session.subjects, session.sessions to svc_session;

-- What must look across tenants. Each function names its reason; nobody but the runtime role may call one.

-- Introspection: a credential says by its digest alone which tenant it belongs to. A session lives while it is neither
-- revoked nor past its time, user and tenant are active, and the standing it was made under still holds. In plpgsql, which
-- keeps its plan: a function in SQL is planned anew at every call, and that costs three times the look-up.
create function session.introspect(in_digests bytea[], in_now timestamptz)
returns table (
    place bigint,
    session_id uuid,
    user_id uuid,
    tenant_id text,
    role text,
    method text,
    created_at timestamptz,
    last_seen_at timestamptz,
    idle_expires_at timestamptz,
    expires_at timestamptz,
    events_per_second integer,
    bytes_per_second integer
)
language plpgsql stable security definer set search_path = '' as $$
begin
    return query
    select
        asked.place, sessions.session_id, sessions.user_id, sessions.tenant_id, subjects.role, sessions.method,
        sessions.created_at, sessions.last_seen_at, sessions.idle_expires_at, sessions.expires_at,
        tenants.events_per_second, tenants.bytes_per_second
    from unnest(in_digests) with ordinality as asked (digest, place)
    join session.sessions on sessions.digest = asked.digest
    join session.subjects on subjects.user_id = sessions.user_id
    join session.tenants on tenants.tenant_id = sessions.tenant_id
    where sessions.revoked_at is null
        and sessions.expires_at > in_now
        and sessions.idle_expires_at > in_now
        and subjects.status = 'active'
        and tenants.status = 'active'
        and tenants.session_version = sessions.session_version
        and (
            subjects.credential_version = sessions.credential_version
            or subjects.kept_session_id = sessions.session_id
        );
end
$$;

-- Introspection again: a session that is used does not end idle. At most once a minute, which the condition repeats
-- because several processes may see the same session at once.
create function session.touch(in_session_ids uuid[], in_now timestamptz)
returns void
language sql volatile security definer set search_path = '' as $$
    update session.sessions
    set last_seen_at = in_now,
        idle_expires_at = least(expires_at, in_now + make_interval(secs => idle_seconds))
    where session_id = any(in_session_ids)
        and revoked_at is null
        and idle_expires_at > in_now
        and expires_at > in_now
        and last_seen_at <= in_now - interval '1 minute'
$$;

-- Logout: the raw token is the proof. Tells whether there ever was such a session.
create function session.revoke_by_digest(in_digest bytea, in_now timestamptz)
returns boolean
language sql volatile security definer set search_path = '' as $$
    update session.sessions set revoked_at = coalesce(revoked_at, in_now) where digest = in_digest returning true
$$;

revoke execute on all functions in schema session from public;
grant execute on all functions in schema session to svc_session;
grant select on session.schema_migrations to svc_session;
