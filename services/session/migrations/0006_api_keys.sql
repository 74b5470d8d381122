-- API keys: credentials of a tenant's own programs. Introspection answers for them and for sessions in one statement, since
-- a digest alone does not say which of the two it is.

create table session.api_keys (
    key_id uuid primary key,
    tenant_id text not null constraint api_keys_tenant_id_fkey references session.tenants,
    name text not null,
    -- SHA-256 of the key; the key itself is never stored.
    digest bytea not null,
    scopes text[] not null,
    -- The sources it may send for; all when empty.
    source_ids text[] not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    last_used_at timestamptz,
    revoked_at timestamptz,
    constraint api_keys_digest_key unique (digest),
    constraint api_keys_scopes_check check (
        scopes <@ array['events:write', 'events:read', 'users:read', 'users:write'] and cardinality(scopes) > 0
    )
);
create index api_keys_tenant_idx on session.api_keys (tenant_id, key_id);
create index api_keys_over_idx on session.api_keys (least(expires_at, coalesce(revoked_at, 'infinity')));

alter table session.api_keys enable row level security;
alter table session.api_keys force row level security;
create policy api_keys_tenant on session.api_keys to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy api_keys_migrator on session.api_keys to svc_session_migrator using (true);
grant select, insert, update on session.api_keys to svc_session;

-- What must look across tenants. Each function names its reason; nobody but the runtime role may call one.

-- Introspection, as before (0001), and for keys: a key lives while it is neither revoked nor past its time, and its tenant
-- is active. It carries no standing, so that it works again when a suspended tenant is resumed. What only the other kind of
-- credential has is null. The binary before this migration answers 503 for a key, which is retried, and never 401.
drop function session.introspect(bytea[], timestamptz);
create function session.introspect(in_digests bytea[], in_now timestamptz)
returns table (
    place bigint,
    tenant_id text,
    created_at timestamptz,
    expires_at timestamptz,
    last_seen_at timestamptz,
    events_per_second integer,
    bytes_per_second integer,
    session_id uuid,
    user_id uuid,
    role text,
    method text,
    idle_expires_at timestamptz,
    key_id uuid,
    scopes text[],
    source_ids text[]
)
language plpgsql stable security definer set search_path = '' as $$
begin
    return query
    select
        asked.place, sessions.tenant_id, sessions.created_at, sessions.expires_at, sessions.last_seen_at,
        tenants.events_per_second, tenants.bytes_per_second,
        sessions.session_id, sessions.user_id, subjects.role, sessions.method, sessions.idle_expires_at,
        null::uuid, null::text[], null::text[]
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
        )
    union all
    select
        asked.place, api_keys.tenant_id, api_keys.created_at, api_keys.expires_at, api_keys.last_used_at,
        tenants.events_per_second, tenants.bytes_per_second,
        null, null, null, null, null,
        api_keys.key_id, api_keys.scopes, api_keys.source_ids
    from unnest(in_digests) with ordinality as asked (digest, place)
    join session.api_keys on api_keys.digest = asked.digest
    join session.tenants on tenants.tenant_id = api_keys.tenant_id
    where api_keys.revoked_at is null
        and api_keys.expires_at > in_now
        and tenants.status = 'active';
end
$$;

-- Introspection again: when a key was last used, to the minute. What another process is noting just now is left to it.
create function session.touch_keys(in_key_ids uuid[], in_now timestamptz)
returns void
language sql volatile security definer set search_path = '' as $$
    update session.api_keys
    set last_used_at = in_now
    where key_id in (
        select used.key_id from session.api_keys as used
        where used.key_id = any(in_key_ids)
            and (used.last_used_at is null or used.last_used_at <= in_now - interval '1 minute')
        for no key update skip locked
    )
$$;

-- Keys that are over are deleted like sessions that are.
create function session.purge_keys(in_before timestamptz, in_limit integer)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with purged as (
        delete from session.api_keys
        where key_id in (
            select over.key_id from session.api_keys as over
            where least(over.expires_at, coalesce(over.revoked_at, 'infinity')) < in_before
            limit in_limit
            for update skip locked
        )
        returning 1
    )
    select count(*) from purged
$$;

revoke execute on all functions in schema session from public;
grant execute on all functions in schema session to svc_session;
