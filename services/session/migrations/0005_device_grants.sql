-- Device login (RFC 8628): a device asks, a person decides elsewhere, the device gets a session.
--
-- There is no foreign key to tenants or users: a device may name a tenant that is not there, and is told nothing of it. Its
-- grant expires like one that nobody has looked at.

create table session.device_grants (
    grant_id uuid primary key,
    tenant_id text not null,
    -- SHA-256 of the device code; the code itself is never stored.
    digest bytea not null,
    -- Eight letters, without the hyphen. They grant nothing by themselves.
    user_code text not null,
    client_name text,
    ip text,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    -- `expired` is no status: it is what the time makes of a grant that is pending or approved.
    status text not null default 'pending',
    -- How long the device has to wait between two questions, and when it last asked.
    interval_seconds integer not null,
    polled_at timestamptz,
    -- Who has approved, and the standing that the session will be made under.
    user_id uuid,
    credential_version bigint,
    session_version bigint,
    constraint device_grants_digest_key unique (digest),
    constraint device_grants_user_code_key unique (tenant_id, user_code),
    constraint device_grants_status_check check (status in ('pending', 'approved', 'denied', 'redeemed')),
    constraint device_grants_approval_check check (
        (status in ('approved', 'redeemed'))
        = (user_id is not null and credential_version is not null and session_version is not null)
    )
);
create index device_grants_over_idx on session.device_grants (expires_at);

-- User codes that a person has typed and that were none: ten an hour, and no more are looked up for them.
create table session.wrong_user_codes (
    tenant_id text not null,
    user_id uuid not null,
    entered_at timestamptz not null
);
create index wrong_user_codes_user_idx on session.wrong_user_codes (user_id, entered_at);
create index wrong_user_codes_over_idx on session.wrong_user_codes (entered_at);

alter table session.device_grants enable row level security;
alter table session.device_grants force row level security;
create policy device_grants_tenant on session.device_grants to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy device_grants_migrator on session.device_grants to svc_session_migrator using (true);

alter table session.wrong_user_codes enable row level security;
alter table session.wrong_user_codes force row level security;
create policy wrong_user_codes_tenant on session.wrong_user_codes to svc_session
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy wrong_user_codes_migrator on session.wrong_user_codes to svc_session_migrator using (true);

grant select, update on session.device_grants to svc_session;
grant select, insert on session.wrong_user_codes to svc_session;

-- What must look across tenants, each with its reason; nobody but the runtime role may call one.

-- Start: the tenant comes from a header that nothing has proven. Tells whether the user code was free.
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

-- Poll: the device code says by its digest alone which tenant it belongs to. Whoever asks early waits five seconds longer
-- from then on; one statement, so that two pollers cannot both be in time.
create function session.poll_device_grant(in_digest bytea, in_now timestamptz)
returns table (
    grant_id uuid,
    tenant_id text,
    status text,
    expires_at timestamptz,
    early boolean,
    user_id uuid,
    credential_version bigint,
    session_version bigint
)
language sql volatile security definer set search_path = '' as $$
    with before as (
        select grants.grant_id,
            coalesce(in_now < grants.polled_at + make_interval(secs => grants.interval_seconds), false) as early
        from session.device_grants as grants
        where grants.digest = in_digest
        for update
    )
    update session.device_grants as grants
    set polled_at = in_now,
        interval_seconds = grants.interval_seconds + case when before.early then 5 else 0 end
    from before
    where grants.grant_id = before.grant_id
    returning grants.grant_id, grants.tenant_id, grants.status, grants.expires_at, before.early,
        grants.user_id, grants.credential_version, grants.session_version
$$;

-- Purge: it is about time, not about anybody's rows. Several replicas may purge at once; each skips what another one holds.
create function session.purge_device_grants(in_before timestamptz, in_limit integer)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with wrong as (
        delete from session.wrong_user_codes
        where ctid in (
            select over.ctid from session.wrong_user_codes as over
            where over.entered_at < in_before
            limit in_limit
            for update skip locked
        )
        returning 1
    ), grants as (
        delete from session.device_grants
        where grant_id in (
            select over.grant_id from session.device_grants as over
            where over.expires_at < in_before
            limit in_limit
            for update skip locked
        )
        returning 1
    )
    select greatest((select count(*) from wrong), (select count(*) from grants))
$$;

revoke execute on function session.start_device_grant(
    uuid, text, bytea, text, text, text, integer, timestamptz, timestamptz
) from public;
revoke execute on function session.poll_device_grant(bytea, timestamptz) from public;
revoke execute on function session.purge_device_grants(timestamptz, integer) from public;
grant execute on function session.start_device_grant(
    uuid, text, bytea, text, text, text, integer, timestamptz, timestamptz
) to svc_session;
grant execute on function session.poll_device_grant(bytea, timestamptz) to svc_session;
grant execute on function session.purge_device_grants(timestamptz, integer) to svc_session;
