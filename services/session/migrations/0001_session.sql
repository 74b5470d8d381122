-- The schema of the session context: sessions, API keys, device grants, and a projection of account status.
--
-- Roles and the schema itself are created outside the migrations (deploy/postgres). Row-level security confines the
-- runtime role `svc_session` to one tenant. It is forced for the owner too. The `_migrator` policies exempt the owner, so
-- that the `security definer` functions at the end can read rows of all tenants.

-- Account status: identity is the source of both tables. An older version never overwrites a newer one.

create table session.tenants (
    tenant_id text collate "C" primary key,
    status text collate "C" not null,
    session_version bigint not null,
    events_per_second integer,
    bytes_per_second integer,
    -- Which users must have a second factor. A session of these is created only after it (`mfa` in `amr`).
    second_factor text collate "C" not null,
    -- A deleted tenant keeps this row, so that a late record of an earlier version changes nothing. `erased_at` is the time at which
    -- no session and no API key of the tenant was left.
    is_deleted boolean not null default false,
    erased_at timestamptz,
    version bigint not null,
    constraint tenants_status_check check (status in ('active', 'suspended')),
    constraint tenants_second_factor_check check (second_factor in ('optional', 'administrators', 'everyone'))
);

create table session.subjects (
    user_id uuid primary key,
    tenant_id text collate "C" not null,
    role text collate "C" not null,
    status text collate "C" not null,
    credential_version bigint not null,
    -- The session that stays active although its credential version is older.
    kept_session_id uuid,
    -- Whether the user has a second factor. Then a session is created only after it (`mfa` in `amr`).
    has_factor boolean not null,
    -- A deleted user keeps this row, so that a late record of an earlier version changes nothing.
    is_deleted boolean not null default false,
    version bigint not null,
    constraint subjects_role_check check (role in ('member', 'admin')),
    constraint subjects_status_check check (status in ('invited', 'active', 'disabled'))
);

create table session.sessions (
    session_id uuid primary key,
    tenant_id text collate "C" not null constraint sessions_tenant_id_fkey references session.tenants,
    user_id uuid not null constraint sessions_user_id_fkey references session.subjects,
    -- SHA-256 of the token. The token itself is never stored.
    digest bytea not null,
    method text collate "C" not null,
    -- How the user authenticated (RFC 8176).
    amr text[] collate "C" not null,
    -- The account versions under which the session was created.
    credential_version bigint not null,
    session_version bigint not null,
    ip text collate "C",
    user_agent text collate "C",
    -- The name of the device that the user approved.
    client_name text collate "C",
    created_at timestamptz not null,
    last_seen_at timestamptz not null,
    -- The idle timeout, and the time at which the session expires if it is not used again: at the latest at the end of its absolute
    -- lifetime.
    idle_seconds integer not null,
    idle_expires_at timestamptz not null,
    -- The end of the absolute lifetime.
    expires_at timestamptz not null,
    -- When the session was revoked, or expired as the expiry sweep has recorded.
    inactive_since timestamptz,
    -- The session is valid before this time; null if it is revoked. All statements compare this column with a time, which is the rule
    -- `SessionLifecycle::is_valid`.
    valid_until timestamptz generated always as (case when inactive_since is null then idle_expires_at end) stored,
    constraint sessions_digest_key unique (digest),
    constraint sessions_method_check check (method in ('password', 'device', 'page')),
    constraint sessions_idle_expires_at_check check (idle_expires_at <= expires_at)
);
-- A login counts the valid sessions of its user. Many can be revoked.
create index sessions_user_idx on session.sessions (user_id, valid_until);
-- For the expiry sweep, and for the count of valid sessions.
create index sessions_valid_until_idx on session.sessions (valid_until) where valid_until is not null;
-- For the purge.
create index sessions_inactive_since_idx on session.sessions (inactive_since) where inactive_since is not null;

create table session.api_keys (
    key_id uuid primary key,
    tenant_id text collate "C" not null constraint api_keys_tenant_id_fkey references session.tenants,
    name text collate "C" not null,
    -- SHA-256 of the key. The key itself is never stored.
    digest bytea not null,
    scopes text[] collate "C" not null,
    -- The sources that the key may send events for; empty for all.
    source_ids text[] collate "C" not null,
    -- The administrator who created the key, and the credential version of the account at that time.
    created_by uuid not null constraint api_keys_created_by_fkey references session.subjects,
    credential_version bigint not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    last_used_at timestamptz,
    revoked_at timestamptz,
    -- The key is valid before this time; null if it is revoked. The rule `KeyLifecycle::is_valid`.
    valid_until timestamptz generated always as (case when revoked_at is null then expires_at end) stored,
    constraint api_keys_digest_key unique (digest),
    constraint api_keys_scopes_check check (
        scopes <@ array['events:write', 'events:read', 'users:read', 'users:write'] and cardinality(scopes) > 0
    )
);
create index api_keys_tenant_idx on session.api_keys (tenant_id, key_id);
-- For the purge. `least` ignores null.
create index api_keys_inactive_from_idx on session.api_keys (least(expires_at, revoked_at));

-- Kubernetes service accounts that may send events, as the operator manages them.
create table session.producers (
    -- The uid of the Kubernetes resource.
    producer_id uuid primary key,
    tenant_id text collate "C" not null constraint producers_tenant_id_fkey references session.tenants,
    -- The operator of the resource: <uid of the namespace kube-system>/<namespace>/<release>.
    operator_id text collate "C" not null,
    namespace text collate "C" not null,
    service_account text collate "C" not null,
    -- Follows from namespace and service account. Introspection finds the producer by it.
    digest bytea not null,
    source_ids text[] collate "C" not null,
    -- The generation of the resource. An older write changes nothing.
    generation bigint not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- A producer that the operator deleted because it did not find the resource keeps its row for a day, so that a delayed write does not restore it.
    deleted_at timestamptz,
    constraint producers_source_ids_check check (cardinality(source_ids) > 0)
);
create unique index producers_digest_key on session.producers (digest) where deleted_at is null;
create index producers_tenant_idx on session.producers (tenant_id);
create index producers_deleted_at_idx on session.producers (deleted_at);

-- Device login (RFC 8628). There is no foreign key to tenants or users: a device can name a tenant that does not exist. It
-- gets the same response, and its grant expires like one that no user has decided.
create table session.device_grants (
    grant_id uuid primary key,
    tenant_id text collate "C" not null,
    -- SHA-256 of the device code. The code itself is never stored.
    digest bytea not null,
    -- Eight letters without the hyphen. They grant nothing by themselves.
    user_code text collate "C" not null,
    client_name text collate "C",
    ip text collate "C",
    created_at timestamptz not null,
    expires_at timestamptz not null,
    -- `expired` is not stored: it follows from `expires_at` for a pending or approved grant.
    status text collate "C" not null default 'pending',
    -- The minimum time between two polls, and the time of the last poll.
    interval_seconds integer not null,
    polled_at timestamptz,
    -- Whether the last poll was early, and whether a second one followed within a second.
    polled_early boolean not null default false,
    polled_twice boolean not null default false,
    -- The user who approved, and the account versions under which the session is created.
    user_id uuid,
    credential_version bigint,
    session_version bigint,
    -- How the user of the approving session authenticated.
    amr text[] collate "C",
    constraint device_grants_digest_key unique (digest),
    constraint device_grants_user_code_key unique (tenant_id, user_code),
    constraint device_grants_status_check check (status in ('pending', 'approved', 'denied', 'redeemed')),
    constraint device_grants_approval_check check (
        (status in ('approved', 'redeemed'))
        = (user_id is not null and credential_version is not null and session_version is not null)
    )
);
create index device_grants_expires_at_idx on session.device_grants (expires_at);

-- include: outbox_1.sql

-- Rate limits, shared by all replicas (libs/ratelimit). Rows belong to addresses, not to tenants, so row-level security does not
-- apply. Unlogged: each request writes, and losing the rows in a crash only resets the limits.
create unlogged table session.limits (
    limit_name text collate "C" not null,
    -- An IPv4 address, an IPv6 network (/64, /56 or /48), or another subject of a limit.
    subject text collate "C" not null,
    -- Time of the next request at an even rate (GCRA). A row with a time in the past has no effect.
    theoretical_arrival_at timestamptz not null,
    -- Whether the last request was allowed.
    allowed boolean not null,
    constraint limits_pkey primary key (limit_name, subject)
)
-- No index on the time, and free space in each page, so that updates are HOT.
with (fillfactor = 50);

-- Row-level security: the runtime role reads and writes rows of the tenant that `svc.tenant_id` names.
do $$
declare
    name text;
begin
    foreach name in array array[
        'tenants', 'subjects', 'sessions', 'api_keys', 'producers', 'device_grants'
    ]
    loop
        execute format('alter table session.%I enable row level security', name);
        execute format('alter table session.%I force row level security', name);
        execute format('create policy %I on session.%I to svc_session_migrator using (true)', name || '_migrator', name);
        execute format(
            $policy$create policy %I on session.%I to svc_session
                using (tenant_id = current_setting('svc.tenant_id', true))$policy$,
            name || '_tenant', name
        );
    end loop;
end
$$;

grant select, insert, update on
    session.tenants, session.subjects, session.sessions, session.api_keys, session.producers
to svc_session;
grant select, update on session.device_grants to svc_session;
grant select, insert, update, delete on session.limits to svc_session;
grant delete on session.sessions, session.producers to svc_session;
grant select on session.schema_migrations to svc_session;

-- Functions of one tenant, for units of work of one statement. They set the tenant, so row-level security applies.

-- A session that is inserted. Not the type of the table: a column that a later release adds would change it.
create type session.new_session as (
    session_id uuid,
    tenant_id text,
    user_id uuid,
    digest bytea,
    method text,
    amr text[],
    credential_version bigint,
    session_version bigint,
    ip text,
    user_agent text,
    client_name text,
    created_at timestamptz,
    idle_seconds integer,
    idle_expires_at timestamptz,
    expires_at timestamptz
);

-- The sessions that are active at a time: the rule `Session::is_active`, which a property test compares with this function. It has no
-- `set` clause, so that the planner replaces its call by its query, which uses the indexes.
create function session.active_sessions(in_at timestamptz)
returns setof session.sessions
language sql stable as $$
    select sessions.*
    from session.sessions
    join session.subjects on subjects.user_id = sessions.user_id
    join session.tenants on tenants.tenant_id = sessions.tenant_id
    where sessions.valid_until > in_at
        and subjects.status = 'active'
        and tenants.status = 'active'
        and tenants.session_version = sessions.session_version
        and (
            subjects.credential_version = sessions.credential_version
            or subjects.kept_session_id = sessions.session_id
        )
$$;

-- Inserts a session and its messages. With versions, locks the user, and returns false without a change if the stored account status has
-- other versions or requires a second factor that the session lacks, or the user has `in_max` active or `in_max_stored` stored sessions.
create function session.insert_session(
    in_session session.new_session, in_tenant_version bigint, in_subject_version bigint, in_max bigint, in_max_stored bigint,
    in_messages jsonb
)
returns boolean
language plpgsql set search_path = '' as $$
begin
    perform set_config('svc.tenant_id', in_session.tenant_id, true);
    if in_subject_version is not null then
        perform from session.subjects join session.tenants using (tenant_id)
        where subjects.user_id = in_session.user_id and not subjects.is_deleted
            and subjects.version = in_subject_version and tenants.version = in_tenant_version
            and (not subjects.has_factor or 'mfa' = any(in_session.amr))
        for update of subjects;
        if not found or in_max <= (
            select count(*) from session.active_sessions(in_session.created_at) as active
            where active.user_id = in_session.user_id
        ) or in_max_stored <= (
            select count(*) from session.sessions where sessions.user_id = in_session.user_id
        ) then
            return false;
        end if;
    end if;
    insert into session.sessions (
        session_id, tenant_id, user_id, digest, method, amr, credential_version, session_version, ip, user_agent, client_name,
        created_at, last_seen_at, idle_seconds, idle_expires_at, expires_at
    )
    values (
        in_session.session_id, in_session.tenant_id, in_session.user_id, in_session.digest, in_session.method, in_session.amr,
        in_session.credential_version, in_session.session_version, in_session.ip, in_session.user_agent,
        in_session.client_name, in_session.created_at, in_session.created_at, in_session.idle_seconds,
        in_session.idle_expires_at, in_session.expires_at
    );
    perform session.outbox_insert(in_session.tenant_id, in_session.created_at, in_messages);
    return true;
end
$$;

-- Functions that access rows of all tenants. Each comment gives the reason. Only the runtime role can execute them.

-- Credentials as introspection finds them, one type for each kind. Not the types of the tables: a column that a later release adds would
-- change them.
create type session.found_session as (
    session_id uuid,
    method text,
    amr text[],
    created_at timestamptz,
    credential_version bigint,
    session_version bigint,
    last_seen_at timestamptz,
    idle_seconds integer,
    idle_expires_at timestamptz,
    expires_at timestamptz,
    inactive_since timestamptz,
    user_id uuid,
    role text,
    user_status text,
    user_credential_version bigint,
    kept_session_id uuid,
    has_factor boolean
);
create type session.found_api_key as (
    key_id uuid,
    scopes text[],
    source_ids text[],
    last_used_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz
);
create type session.found_producer as (
    namespace text,
    service_account text,
    source_ids text[]
);

-- Introspection: the digest of a credential determines its tenant. Returns each known credential with the tenant and the account that it
-- depends on; the caller decides whether it is active. One of `session`, `api_key` and `producer` is not null. Each digest is that of one
-- credential, so the tables are read in the order of their use until all are found. In plpgsql, because a function in SQL is planned at
-- every call, which takes three times as long as the lookup.
create function session.find_credentials(in_digests bytea[])
returns table (
    "position" bigint,
    tenant_id text,
    tenant_status text,
    tenant_session_version bigint,
    events_per_second integer,
    bytes_per_second integer,
    session session.found_session,
    api_key session.found_api_key,
    producer session.found_producer
)
language plpgsql stable security definer set search_path = '' as $$
declare
    missing bigint := cardinality(in_digests);
    found_now bigint;
begin
    return query
    select
        requested."position", tenants.tenant_id, tenants.status, tenants.session_version, tenants.events_per_second,
        tenants.bytes_per_second,
        (
            sessions.session_id, sessions.method, sessions.amr, sessions.created_at, sessions.credential_version, sessions.session_version,
            sessions.last_seen_at, sessions.idle_seconds, sessions.idle_expires_at, sessions.expires_at,
            sessions.inactive_since, sessions.user_id, subjects.role, subjects.status, subjects.credential_version,
            subjects.kept_session_id, subjects.has_factor
        )::session.found_session,
        null::session.found_api_key, null::session.found_producer
    from unnest(in_digests) with ordinality as requested (digest, "position")
    join session.sessions on sessions.digest = requested.digest
    join session.subjects on subjects.user_id = sessions.user_id
    join session.tenants on tenants.tenant_id = sessions.tenant_id;
    get diagnostics found_now = row_count;
    missing := missing - found_now;
    if missing = 0 then
        return;
    end if;
    return query
    select
        requested."position", tenants.tenant_id, tenants.status, tenants.session_version, tenants.events_per_second,
        tenants.bytes_per_second, null::session.found_session,
        (
            api_keys.key_id, api_keys.scopes, api_keys.source_ids, api_keys.last_used_at, api_keys.expires_at,
            api_keys.revoked_at
        )::session.found_api_key,
        null::session.found_producer
    from unnest(in_digests) with ordinality as requested (digest, "position")
    join session.api_keys on api_keys.digest = requested.digest
    join session.tenants on tenants.tenant_id = api_keys.tenant_id;
    get diagnostics found_now = row_count;
    missing := missing - found_now;
    if missing = 0 then
        return;
    end if;
    return query
    select
        requested."position", tenants.tenant_id, tenants.status, tenants.session_version, tenants.events_per_second,
        tenants.bytes_per_second, null::session.found_session, null::session.found_api_key,
        (producers.namespace, producers.service_account, producers.source_ids)::session.found_producer
    from unnest(in_digests) with ordinality as requested (digest, "position")
    join session.producers on producers.digest = requested.digest and producers.deleted_at is null
    join session.tenants on tenants.tenant_id = producers.tenant_id;
end
$$;

-- Returns whether a use of a credential is recorded: the rule `is_use_due`. The planner replaces its call by the expression.
create function session.is_use_due(in_last_used_at timestamptz, in_used_at timestamptz, in_interval interval)
returns boolean
language sql stable as $$
    select coalesce(in_last_used_at, '-infinity') <= in_used_at - in_interval
$$;

-- Records uses of sessions and API keys and extends the idle timeouts of the sessions, at most once per interval and row. The
-- condition is repeated because several processes can use a credential at once. Returns the ids of rows that another
-- transaction has locked: waiting for them could end in a deadlock. The commit does not wait for the disk or a standby (a `set`
-- clause of the function would end before it), so a crash can lose the uses of the last second.
create function session.save_uses(
    in_ids uuid[], in_used_at timestamptz[], in_idle_expires_at timestamptz[], in_interval interval
)
returns uuid[]
language plpgsql volatile security definer set search_path = '' as $$
declare
    used_sessions bigint;
    used_keys bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    update session.sessions
    set last_seen_at = used.used_at, idle_expires_at = used.idle_expires_at
    from (
        select requested.*
        from unnest(in_ids, in_used_at, in_idle_expires_at) as requested (id, used_at, idle_expires_at)
        join session.sessions on sessions.session_id = requested.id
        where sessions.inactive_since is null
            and session.is_use_due(sessions.last_seen_at, requested.used_at, in_interval)
        for no key update of sessions skip locked
    ) as used
    where sessions.session_id = used.id;
    get diagnostics used_sessions = row_count;
    update session.api_keys
    set last_used_at = used.used_at
    from (
        select requested.*
        from unnest(in_ids, in_used_at) as requested (id, used_at)
        join session.api_keys on api_keys.key_id = requested.id
        where session.is_use_due(api_keys.last_used_at, requested.used_at, in_interval)
        for no key update of api_keys skip locked
    ) as used
    where api_keys.key_id = used.id;
    get diagnostics used_keys = row_count;
    if used_sessions + used_keys = cardinality(in_ids) then
        return '{}';
    end if;
    return array(
        select requested.id
        from unnest(in_ids, in_used_at) as requested (id, used_at)
        left join session.sessions on sessions.session_id = requested.id
        left join session.api_keys on api_keys.key_id = requested.id
        where sessions.session_id is not null and sessions.inactive_since is null
                and session.is_use_due(sessions.last_seen_at, requested.used_at, in_interval)
            or api_keys.key_id is not null
                and session.is_use_due(api_keys.last_used_at, requested.used_at, in_interval)
    );
end
$$;

-- Logout: the raw token is the proof, and its digest determines the tenant. The session is then revoked and audited in a
-- transaction of that tenant.
create function session.find_session_by_digest(in_digest bytea)
returns table (session_id uuid, tenant_id text, user_id uuid)
language sql stable security definer set search_path = '' as $$
    select session_id, tenant_id, user_id from session.sessions where digest = in_digest
$$;

-- Device login, start: the tenant comes from an unverified header. Returns false if the user code is taken.
create function session.start_device_grant(
    in_grant_id uuid,
    in_tenant_id text,
    in_digest bytea,
    in_user_code text,
    in_client_name text,
    in_ip text,
    in_interval_seconds integer,
    in_now timestamptz,
    in_expires_at timestamptz
)
returns boolean
language sql volatile security definer set search_path = '' as $$
    with started as (
        insert into session.device_grants
            (grant_id, tenant_id, digest, user_code, client_name, ip, interval_seconds, created_at, expires_at)
        values (
            in_grant_id, in_tenant_id, in_digest, in_user_code, in_client_name, in_ip, in_interval_seconds, in_now,
            in_expires_at
        )
        on conflict on constraint device_grants_user_code_key do nothing
        returning 1
    )
    select exists (select from started)
$$;

-- Device login, poll: the digest of the device code determines the tenant. An early poll lengthens the interval permanently. One
-- statement, so that of two concurrent polls at most one is on time.
create function session.poll_device_grant(in_digest bytea, in_now timestamptz, in_slow_down_seconds integer)
returns table (
    grant_id uuid,
    tenant_id text,
    status text,
    expires_at timestamptz,
    early boolean,
    client_name text,
    user_id uuid,
    credential_version bigint,
    session_version bigint,
    amr text[]
)
language sql volatile security definer set search_path = '' as $$
    with before as (
        select grants.grant_id, repeated, case
            when repeated then grants.polled_early
            else coalesce(in_now < grants.polled_at + make_interval(secs => grants.interval_seconds), false)
        end as early
        from session.device_grants as grants
        -- Some clients send each poll twice at once, with the credentials of the client in the header and in the body. Both get the
        -- same response.
        cross join lateral (
            select coalesce(not grants.polled_twice and in_now < grants.polled_at + interval '1 second', false) as repeated
        ) as second
        where grants.digest = in_digest
        for update of grants
    )
    update session.device_grants as grants
    set polled_at = case when before.repeated then grants.polled_at else in_now end,
        polled_early = before.early,
        polled_twice = before.repeated,
        interval_seconds = grants.interval_seconds + case when before.early and not before.repeated then in_slow_down_seconds else 0 end
    from before
    where grants.grant_id = before.grant_id
    returning grants.grant_id, grants.tenant_id, grants.status, grants.expires_at, before.early,
        grants.client_name, grants.user_id, grants.credential_version, grants.session_version, grants.amr
$$;

-- Purge: deletes rows that have been inactive since before a time, at most `in_limit` of each table. Returns the largest of their numbers.
-- Several replicas can purge at once: each skips rows that another one has locked.
create function session.purge(in_before timestamptz, in_limit integer)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with purged_sessions as (
        delete from session.sessions where session_id = any(array(
            select inactive.session_id from session.sessions as inactive
            where inactive.inactive_since < in_before
            limit in_limit
            for update skip locked
        ))
        returning 1
    ), purged_keys as (
        delete from session.api_keys where key_id = any(array(
            select inactive.key_id from session.api_keys as inactive
            where least(inactive.expires_at, inactive.revoked_at) < in_before
            limit in_limit
            for update skip locked
        ))
        returning 1
    ), purged_producers as (
        delete from session.producers where producer_id = any(array(
            select deleted.producer_id from session.producers as deleted
            where deleted.deleted_at < in_before
            limit in_limit
            for update skip locked
        ))
        returning 1
    ), purged_grants as (
        delete from session.device_grants where grant_id = any(array(
            select expired.grant_id from session.device_grants as expired
            where expired.expires_at < in_before
            limit in_limit
            for update skip locked
        ))
        returning 1
    )
    select greatest(
        (select count(*) from purged_sessions), (select count(*) from purged_keys),
        (select count(*) from purged_producers), (select count(*) from purged_grants)
    )
$$;

-- An operator compares its producers of all tenants with its resources.
create function session.list_producers(in_operator_id text, in_after uuid, in_limit integer)
returns table (
    producer_id uuid, tenant_id text, namespace text, service_account text, source_ids text[], generation bigint
)
language sql stable security definer set search_path = '' as $$
    select
        producers.producer_id, producers.tenant_id, producers.namespace, producers.service_account, producers.source_ids,
        producers.generation
    from session.producers
    where producers.operator_id = in_operator_id and producers.deleted_at is null and producers.producer_id > in_after
    order by producers.producer_id
    limit in_limit
$$;

-- `svc-session invalidate-before`: revokes the credentials of all tenants, one tenant at a time.
create function session.list_tenants()
returns setof text
language sql stable security definer set search_path = '' as $$
    select tenant_id from session.tenants order by tenant_id
$$;

-- Erasure of deleted tenants: takes one of them and deletes at most `in_limit` rows of each table. Returns 0 if no tenant is left.
create function session.erase_tenants(in_now timestamptz, in_limit integer)
returns bigint
language plpgsql volatile security definer set search_path = '' as $$
declare
    erased_tenant_id text;
    erased bigint;
begin
    select tenants.tenant_id into erased_tenant_id
    from session.tenants
    where tenants.is_deleted and tenants.erased_at is null
    limit 1
    for no key update skip locked;
    if erased_tenant_id is null then
        return 0;
    end if;
    with erased_sessions as (
        delete from session.sessions where session_id = any(array(
            select sessions.session_id from session.sessions where sessions.tenant_id = erased_tenant_id limit in_limit
        ))
        returning 1
    ), erased_keys as (
        delete from session.api_keys where key_id = any(array(
            select api_keys.key_id from session.api_keys where api_keys.tenant_id = erased_tenant_id limit in_limit
        ))
        returning 1
    ), erased_producers as (
        delete from session.producers where producer_id = any(array(
            select producers.producer_id from session.producers where producers.tenant_id = erased_tenant_id limit in_limit
        ))
        returning 1
    ), erased_grants as (
        delete from session.device_grants where grant_id = any(array(
            select grants.grant_id from session.device_grants as grants
            where grants.tenant_id = erased_tenant_id
            limit in_limit
        ))
        returning 1
    )
    select (select count(*) from erased_sessions) + (select count(*) from erased_keys)
        + (select count(*) from erased_producers) + (select count(*) from erased_grants)
    into erased;
    if erased = 0 then
        update session.tenants set erased_at = in_now where tenant_id = erased_tenant_id;
    end if;
    return greatest(erased, 1);
end
$$;

-- Expiry sweep: the sessions of all tenants that expired by a time, oldest first. A transaction of each tenant then records the expiry.
create function session.list_expired_sessions(in_by timestamptz, in_limit integer)
returns table (tenant_id text, session_ids uuid[])
language sql stable security definer set search_path = '' as $$
    select expired.tenant_id, array_agg(expired.session_id)
    from (
        select sessions.tenant_id, sessions.session_id
        from session.sessions
        where sessions.valid_until <= in_by
        order by sessions.valid_until
        limit in_limit
    ) as expired
    group by expired.tenant_id
$$;

-- Metrics: a number only. Uses the index, so the cost follows the number of valid sessions.
create function session.count_valid_sessions(in_now timestamptz)
returns bigint
language sql stable security definer set search_path = '' as $$
    select count(*) from session.sessions where valid_until > in_now
$$;

-- Statements that requests wait for are planned once per connection, perhaps while the tables are empty, so their plans use indexes and
-- stay fast when the tables have grown. Otherwise Postgres would plan statements with arrays at every execution, which takes longer than
-- the statements.
do $$
declare
    name text;
begin
    foreach name in array array['find_credentials', 'save_uses', 'insert_session']
    loop
        execute format(
            'alter function session.%I set plan_cache_mode = force_generic_plan
                set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off',
            name
        );
    end loop;
end
$$;

revoke execute on all functions in schema session from public;
grant execute on all functions in schema session to svc_session;
