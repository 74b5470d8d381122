-- Schema of the identity service: tenants, users, invites, password resets, the outbox and login throttling.
--
-- The roles and the schema are created outside the migrations (deploy/postgres). The migrator owns the schema. The runtime
-- role `svc_identity` has no DDL rights, and row-level security confines it to one tenant. Row-level security is forced for
-- the owner too. The `_migrator` policies let the `security definer` functions below read all tenants.

create table identity.tenants (
    tenant_id text collate "C" primary key,
    display_name text collate "C" not null,
    status text collate "C" not null,
    -- Increases at suspension, which revokes all sessions that were created under an older value.
    session_version bigint not null default 1,
    events_per_second integer,
    bytes_per_second integer,
    -- Which users must have a second factor.
    second_factor text collate "C" not null default 'optional',
    -- Minimum number of characters of a new password; null for that of the installation, which is a lower bound in any case.
    password_min_length integer,
    -- Whether a passkey alone is a login.
    passkey_login boolean not null default true,
    -- Increases at every change. An older record never overwrites a newer one in another service.
    version bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- A deleted tenant keeps this row, so that its id is not used again. `erased_at` is the last time at which no row of the tenant
    -- was left.
    deleted_at timestamptz,
    erased_at timestamptz,
    constraint tenants_tenant_id_check check (tenant_id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    constraint tenants_status_check check (status in ('active', 'suspended', 'deleted')),
    constraint tenants_second_factor_check check (second_factor in ('optional', 'administrators', 'everyone')),
    constraint tenants_deleted_at_check check ((status = 'deleted') = (deleted_at is not null))
);

create table identity.users (
    user_id uuid primary key,
    tenant_id text collate "C" not null constraint users_tenant_id_fkey references identity.tenants,
    -- The address as typed, and its normalized form for comparison: trimmed, NFC, lower case, domain in ASCII.
    email text collate "C" not null,
    email_key text collate "C" not null,
    -- The same for addresses that look the same (UTS 39), so that one user cannot be mistaken for another.
    email_skeleton text collate "C" not null,
    role text collate "C" not null,
    status text collate "C" not null,
    -- A PHC string; null until the invite is accepted.
    password_digest text collate "C",
    -- Increases at password change, reset and disable, which revokes all sessions except the kept one.
    credential_version bigint not null default 1,
    kept_session_id uuid,
    -- API keys that the user created under a lower credential version are revoked.
    api_key_version bigint not null default 1,
    -- Whether the user has a confirmed second factor. session creates no session without it.
    has_factor boolean not null default false,
    -- The user handle of all passkeys (WebAuthn Level 3, section 5.4.3): random, and not the id, which others know. It never changes, so an
    -- authenticator lists the account once.
    user_handle uuid not null default gen_random_uuid(),
    -- Wrong answers to challenges of logins since the window of 24 hours began. Null: none.
    factor_failures integer not null default 0,
    factor_window_ends_at timestamptz,
    version bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    constraint users_email_key unique (tenant_id, email_key),
    constraint users_email_skeleton_key unique (tenant_id, email_skeleton),
    constraint users_role_check check (role in ('member', 'admin')),
    constraint users_status_check check (status in ('invited', 'active', 'disabled')),
    constraint users_password_digest_check check (status = 'invited' or password_digest is not null)
);
create index users_tenant_idx on identity.users (tenant_id, user_id);

-- Tenants that a Kubernetes resource owns.
create table identity.managed_tenants (
    tenant_id text collate "C" primary key constraint managed_tenants_tenant_id_fkey references identity.tenants,
    -- The operator of the resource: <uid of the namespace kube-system>/<namespace>/<release>.
    operator_id text collate "C" not null,
    -- The uid and the generation of the resource. An older write changes nothing.
    owner_uid uuid not null,
    generation bigint not null,
    -- The version of the tenant after the last write of the owner. Another one means that someone else changed the tenant.
    tenant_version bigint not null,
    -- The invite of the first administrator, and its term if the owner got the token.
    invite_id uuid,
    invite_expires_at timestamptz,
    -- The operator did not find the resource. A delayed write of a former leader does not make it the owner again.
    released_at timestamptz,
    -- The operator took the tenant over from another one.
    taken_over_at timestamptz
);

-- Deleted users, without personal data. The versions let session apply the deletion in any order with earlier changes.
create table identity.deleted_users (
    user_id uuid primary key,
    tenant_id text collate "C" not null constraint deleted_users_tenant_id_fkey references identity.tenants,
    credential_version bigint not null,
    version bigint not null,
    deleted_at timestamptz not null,
    -- The administrator who deleted the user.
    deleted_by uuid not null
);

create table identity.invites (
    invite_id uuid primary key,
    tenant_id text collate "C" not null constraint invites_tenant_id_fkey references identity.tenants,
    -- The invited user, who is deleted when the invite is revoked or has expired.
    user_id uuid not null,
    -- The address as typed, and its normalized form.
    email text collate "C" not null,
    email_key text collate "C" not null,
    -- The administrator who created the invite. Null for an API key, the platform administrator, and a deleted user.
    invited_by uuid constraint invites_invited_by_fkey references identity.users on delete set null,
    role text collate "C" not null,
    -- A pending invite after `expires_at` is expired. The row changes to `expired` when a new invite replaces it.
    status text collate "C" not null,
    -- SHA-256 of the tokens that can be used: that of a response or of the last accepted mail, and those of later attempts to send.
    -- Each attempt creates a new token.
    digests bytea[] not null default '{}',
    -- When the mail server accepted the mail of this term.
    mailed_at timestamptz,
    expires_at timestamptz not null,
    created_at timestamptz not null,
    settled_at timestamptz,
    constraint invites_role_check check (role in ('member', 'admin')),
    constraint invites_status_check check (status in ('pending', 'accepted', 'expired', 'revoked')),
    constraint invites_settled_at_check check ((settled_at is null) = (status = 'pending'))
);
-- If two administrators invite the same person at the same time, one request fails.
create unique index invites_pending_key on identity.invites (tenant_id, email_key) where status = 'pending';
create index invites_tenant_idx on identity.invites (tenant_id, invite_id);
create index invites_digests_idx on identity.invites using gin (digests);
create index invites_invited_by_idx on identity.invites (invited_by);
-- The purge finds expired and settled invites.
create index invites_expires_at_idx on identity.invites (expires_at) where status = 'pending';
create index invites_settled_at_idx on identity.invites (settled_at);

create table identity.resets (
    reset_id uuid primary key,
    -- The outbox message of the request. Each attempt to send it creates a reset with a new token.
    mail_id uuid not null,
    tenant_id text collate "C" not null constraint resets_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint resets_user_id_fkey references identity.users on delete cascade,
    -- A pending reset after `expires_at` is expired.
    status text collate "C" not null,
    -- SHA-256 of the token.
    digest bytea not null,
    expires_at timestamptz not null,
    created_at timestamptz not null,
    settled_at timestamptz,
    constraint resets_digest_key unique (digest),
    constraint resets_status_check check (status in ('pending', 'used', 'replaced')),
    constraint resets_settled_at_check check ((settled_at is null) = (status = 'pending'))
);
-- A reset stays pending until the mail server has accepted the mail of a newer one.
create index resets_pending_idx on identity.resets (user_id) where status = 'pending';
create index resets_user_idx on identity.resets (user_id, created_at);

-- Authenticator apps (TOTP, RFC 6238), at most one per user.
create table identity.totp_factors (
    factor_id uuid primary key,
    tenant_id text collate "C" not null constraint totp_factors_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint totp_factors_user_id_fkey references identity.users on delete cascade,
    -- Encrypted under SVC_FACTOR_KEY: id of the key (8 bytes), nonce, ciphertext, tag.
    secret bytea not null,
    created_at timestamptz not null,
    -- Null until the first code. Until then, the app has no effect.
    confirmed_at timestamptz,
    last_used_at timestamptz,
    -- The time step of the last accepted code. Codes of it and of earlier ones are rejected.
    last_step bigint not null default 0,
    constraint totp_factors_user_id_key unique (user_id)
);

-- Passkeys (WebAuthn Level 3), at most ten per user.
create table identity.passkeys (
    factor_id uuid primary key,
    tenant_id text collate "C" not null constraint passkeys_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint passkeys_user_id_fkey references identity.users on delete cascade,
    name text collate "C" not null,
    credential_id bytea not null,
    -- As the authenticator sent it (COSE_Key, RFC 9052).
    public_key bytea not null,
    -- The counter of the last login. An authenticator without a counter always sends 0.
    sign_count bigint not null,
    -- Whether the passkey can be copied to other devices. It never changes.
    backup_eligible boolean not null,
    created_at timestamptz not null,
    last_used_at timestamptz,
    -- Per user: the answer to a registration must not depend on the passkeys of others. The user handle of a login determines the user.
    constraint passkeys_credential_id_key unique (user_id, credential_id)
);
create index passkeys_credential_id_idx on identity.passkeys (credential_id);

-- Unused recovery codes.
create table identity.recovery_codes (
    user_id uuid not null constraint recovery_codes_user_id_fkey references identity.users on delete cascade,
    tenant_id text collate "C" not null constraint recovery_codes_tenant_id_fkey references identity.tenants,
    -- SHA-256 of the code.
    digest bytea not null,
    constraint recovery_codes_pkey primary key (user_id, digest)
);

-- Logins with the right password that wait for the second factor, and registrations of passkeys. A new one deletes the expired ones
-- of the user.
create table identity.login_challenges (
    -- SHA-256 of the token.
    digest bytea primary key,
    tenant_id text collate "C" not null constraint login_challenges_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint login_challenges_user_id_fkey references identity.users on delete cascade,
    -- The version of the verified password.
    credential_version bigint not null,
    -- `set_up` permits the set-up of a second factor, of a user who has none and must have one. `repeat_set_up` logs in and returns new recovery
    -- codes: the set-up succeeded, but its response without them was an error.
    purpose text collate "C" not null,
    -- Where the client logged in: an IPv4 address or an IPv6 /48 network. Networks share the challenges of a user. Null if the client has a
    -- session.
    network text collate "C",
    attempts integer not null default 0,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    constraint login_challenges_purpose_check check (purpose in ('log_in', 'set_up', 'repeat_set_up', 'register_passkey'))
);
create index login_challenges_user_idx on identity.login_challenges (user_id, created_at);

-- Challenges of successful logins with a passkey alone, until they expire. An unused one has no row, because any client can request one. A new
-- row deletes the expired ones of the user.
create table identity.used_challenges (
    challenge bytea primary key,
    tenant_id text collate "C" not null constraint used_challenges_tenant_id_fkey references identity.tenants,
    user_id uuid not null constraint used_challenges_user_id_fkey references identity.users on delete cascade,
    expires_at timestamptz not null
);
create index used_challenges_user_idx on identity.used_challenges (user_id);

-- include: outbox_1.sql

-- The mail of an invite.
create index outbox_invite_idx on identity.outbox (((payload ->> 'invite_id')::uuid)) where kind = 'mail_invite';

-- A client can name any number of tenants and accounts that do not exist. Their messages share one turn, so that they do not
-- delay those of others. Each message is checked, so the statement is the same for every account.
create or replace function identity.outbox_turn()
returns trigger
language plpgsql set search_path = '' as $$
begin
    new.turn := coalesce((
        select tenants.tenant_id from identity.tenants
        where tenants.tenant_id = new.tenant_id
            and (new.erased_with_email is null or exists (
                select from identity.users
                where users.tenant_id = new.tenant_id
                    and users.email_key = new.erased_with_email
                    and users.status = 'active'
            ))
    ), '_');
    return new;
end
$$;

create or replace function identity.outbox_is_suspended(in_tenant_id text)
returns boolean
language plpgsql stable set search_path = '' as $$
begin
    return exists (select from identity.tenants where tenant_id = in_tenant_id and status = 'suspended');
end
$$;

-- Rate limits, shared by all replicas (libs/ratelimit). Rows belong to addresses, not to tenants, so row-level security does not
-- apply. Unlogged: each request writes, and losing the rows in a crash only resets the limits.
create unlogged table identity.limits (
    limit_name text collate "C" not null,
    -- An IPv4 address, an IPv6 network (/64, /56 or /48), or another subject of a limit. The recipient of a mail is an HMAC of the
    -- address, so that the table does not reveal who receives mails.
    subject text collate "C" not null,
    -- Time of the next request at an even rate (GCRA). A row with a time in the past has no effect.
    theoretical_arrival_at timestamptz not null,
    -- Whether the last request was allowed.
    allowed boolean not null,
    constraint limits_pkey primary key (limit_name, subject)
)
-- No index on the time, and free space in each page, so that updates are HOT.
with (fillfactor = 50);

-- Reports of new API keys that were received, so that a repeated report sends no mail. The rows name no tenant, so row-level
-- security does not apply.
create table identity.api_key_reports (
    key_id uuid primary key,
    reported_at timestamptz not null
);
create index api_key_reports_reported_at_idx on identity.api_key_reports (reported_at);

-- Login throttling. `account_key` is an HMAC of tenant and address, so that unknown accounts are throttled like known ones and
-- the table does not reveal which accounts exist. The rows belong to no tenant, so row-level security does not apply.

-- Per account and source address. Unlogged, because each attempt writes a row; a crash resets the back-off.
create unlogged table identity.login_attempts (
    account_key bytea not null,
    source text collate "C" not null,
    -- Failures since the window of 24 hours began.
    failures integer not null,
    back_off_until timestamptz not null,
    window_ends_at timestamptz not null,
    -- Start times of the logins in flight. An entry expires after 30 seconds, because its process may have stopped.
    in_flight timestamptz[] not null,
    -- Start times of the password changes in flight. A common limit would reveal which user has which address.
    changes_in_flight timestamptz[] not null,
    -- The last successful login. It exempts the source from the lockout for 30 days.
    last_success_at timestamptz,
    constraint login_attempts_pkey primary key (account_key, source)
)
with (fillfactor = 50);

-- Per account: consecutive failures from any source. Logged, because a crash must not unlock an account.
create table identity.login_failures (
    account_key bytea not null,
    consecutive_failures integer not null,
    last_failed_at timestamptz not null,
    -- Whether an account with a password existed when the last result was saved. If not, the row is deleted one day after the last failure. Otherwise
    -- it is deleted after 30 days, except a lockout, which does not expire.
    has_password boolean not null,
    constraint login_failures_pkey primary key (account_key)
)
with (fillfactor = 50);

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

alter table identity.deleted_users enable row level security;
alter table identity.deleted_users force row level security;
create policy deleted_users_tenant on identity.deleted_users to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy deleted_users_migrator on identity.deleted_users to svc_identity_migrator using (true);

alter table identity.managed_tenants enable row level security;
alter table identity.managed_tenants force row level security;
create policy managed_tenants_tenant on identity.managed_tenants to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy managed_tenants_migrator on identity.managed_tenants to svc_identity_migrator using (true);

-- Revoking an invite deletes its user. Any other user can be deleted only after it is recorded as deleted.
create policy users_delete on identity.users as restrictive for delete to svc_identity using (
    status = 'invited'
    or exists (select from identity.deleted_users where deleted_users.user_id = users.user_id)
);

alter table identity.invites enable row level security;
alter table identity.invites force row level security;
create policy invites_tenant on identity.invites to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy invites_migrator on identity.invites to svc_identity_migrator using (true);

alter table identity.resets enable row level security;
alter table identity.resets force row level security;
create policy resets_tenant on identity.resets to svc_identity
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy resets_migrator on identity.resets to svc_identity_migrator using (true);

do $$
declare
    name text;
begin
    foreach name in array array['totp_factors', 'passkeys', 'recovery_codes', 'login_challenges', 'used_challenges']
    loop
        execute format('alter table identity.%I enable row level security', name);
        execute format('alter table identity.%I force row level security', name);
        execute format('create policy %I on identity.%I to svc_identity_migrator using (true)', name || '_migrator', name);
        execute format(
            $policy$create policy %I on identity.%I to svc_identity
                using (tenant_id = current_setting('svc.tenant_id', true))$policy$,
            name || '_tenant', name
        );
    end loop;
end
$$;

grant select, insert, update on identity.tenants, identity.users, identity.invites, identity.resets to svc_identity;
grant select, insert, update, delete on
    identity.totp_factors, identity.passkeys, identity.recovery_codes, identity.login_challenges, identity.used_challenges
to svc_identity;
grant delete on identity.users, identity.invites to svc_identity;
grant select, insert on identity.deleted_users to svc_identity;
grant select, insert, update on identity.managed_tenants to svc_identity;
grant delete, select (kind, erased_with_users, erased_with_email, dead_lettered_at, last_error) on identity.outbox to svc_identity;
grant select, insert, update, delete on
    identity.limits, identity.api_key_reports, identity.login_attempts, identity.login_failures to svc_identity;
grant select on identity.schema_migrations to svc_identity;

-- Functions of one tenant, for units of work of one statement. They set the tenant, so row-level security applies.

-- Login throttling: the service computes the new state, and these functions write it if the old one has not changed. The version of a
-- row is its `xmin`.

-- The attempts at an account from one source. Not the type of the table: a column that a later release adds would change it.
create type identity.source_attempts as (
    account_key bytea,
    source text,
    failures integer,
    back_off_until timestamptz,
    window_ends_at timestamptz,
    in_flight timestamptz[],
    changes_in_flight timestamptz[],
    last_success_at timestamptz
);

-- Saves the attempts at an account from one source. Returns the version, or null if the row is not the one of the given version. A row
-- that was deleted meanwhile is not restored.
create function identity.save_attempts(in_attempts identity.source_attempts, in_version text)
returns text
language plpgsql set search_path = '' as $$
declare
    saved text;
begin
    if in_version is null then
        insert into identity.login_attempts (
            account_key, source, failures, back_off_until, window_ends_at, in_flight, changes_in_flight, last_success_at
        )
        select in_attempts.* on conflict (account_key, source) do nothing
        returning xmin::text into saved;
    else
        update identity.login_attempts set
            failures = in_attempts.failures,
            back_off_until = in_attempts.back_off_until,
            window_ends_at = in_attempts.window_ends_at,
            in_flight = in_attempts.in_flight,
            changes_in_flight = in_attempts.changes_in_flight,
            last_success_at = in_attempts.last_success_at
        where account_key = in_attempts.account_key and source = in_attempts.source and xmin::text = in_version
        returning xmin::text into saved;
    end if;
    return saved;
end
$$;

-- Saves the consecutive failures of an account. Returns false if they are not those of before. An account without consecutive failures has no row.
create function identity.save_failures(
    in_account_key bytea, in_before integer, in_failures integer, in_now timestamptz, in_user_id uuid
)
returns boolean
language plpgsql set search_path = '' as $$
declare
    -- False if the user was deleted after the attempt was admitted, or is only invited.
    password_exists boolean := exists (
        select from identity.users where users.user_id = in_user_id and users.password_digest is not null
    );
begin
    if in_before = 0 then
        insert into identity.login_failures (account_key, consecutive_failures, last_failed_at, has_password)
        values (in_account_key, in_failures, in_now, password_exists)
        on conflict (account_key) do nothing;
    elsif in_failures = 0 then
        delete from identity.login_failures where account_key = in_account_key and consecutive_failures = in_before;
    else
        update identity.login_failures
        set consecutive_failures = in_failures, last_failed_at = in_now, has_password = password_exists
        where account_key = in_account_key and consecutive_failures = in_before;
    end if;
    return found;
end
$$;

-- Saves the state after an attempt with the messages about it. Returns false without a change if the stored state is not the one before.
create function identity.settle_attempt(
    in_tenant_id text, in_now timestamptz, in_attempts identity.source_attempts, in_version text,
    in_failures_before integer, in_failures integer, in_user_id uuid, in_messages jsonb
)
returns boolean
language plpgsql set search_path = '' as $$
begin
    perform set_config('svc.tenant_id', in_tenant_id, true);
    -- Without a lock, because a settlement that is repeated must not delay others.
    if in_version is distinct from (
        select xmin::text from identity.login_attempts
        where account_key = in_attempts.account_key and source = in_attempts.source
    ) or in_failures_before <> coalesce((
        select consecutive_failures from identity.login_failures where account_key = in_attempts.account_key
    ), 0) then
        return false;
    end if;
    -- The row of the account before the row of the source, as in a password reset.
    if in_failures <> in_failures_before and not identity.save_failures(
        in_attempts.account_key, in_failures_before, in_failures, in_now, in_user_id
    ) then
        return false;
    end if;
    if identity.save_attempts(in_attempts, in_version) is null then
        raise serialization_failure;
    end if;
    if in_messages <> '[]' then
        perform identity.outbox_insert(in_tenant_id, in_now, in_messages);
    end if;
    return true;
-- Undoes the change of the row of the account.
exception when serialization_failure then
    return false;
end
$$;

-- Deletes the counted logins of accounts: the failures, and at most `in_limit` sources. Returns the number of sources.
create function identity.delete_counted_logins(in_account_keys bytea[], in_limit bigint)
returns bigint
language plpgsql set search_path = '' as $$
declare
    found_sources bigint;
begin
    -- The account before its sources, like a login.
    delete from identity.login_failures where account_key = any(in_account_keys);
    -- Counts the found sources: another transaction can delete some of them meanwhile.
    with sources as (
        select account_key, source from identity.login_attempts where account_key = any(in_account_keys) limit in_limit
    ), deleted as (
        delete from identity.login_attempts as attempts using sources
        where attempts.account_key = sources.account_key and attempts.source = sources.source
    )
    select count(*) into found_sources from sources;
    -- A login can have saved the first failure meanwhile.
    delete from identity.login_failures where account_key = any(in_account_keys);
    return found_sources;
end
$$;

-- Functions that read or write rows of all tenants. The comment of each gives the reason. Only the runtime role may call them.

-- Login and password change: the tenant comes from an unverified header. The account has the given address or the given
-- id. Returns a row without a user if only the tenant exists.
create function identity.find_account(in_tenant_id text, in_email_key text, in_user_id uuid)
returns table (
    user_id uuid,
    role text,
    status text,
    password_digest text,
    credential_version bigint,
    kept_session_id uuid,
    api_key_version bigint,
    user_version bigint,
    tenant_status text,
    session_version bigint,
    events_per_second integer,
    bytes_per_second integer,
    tenant_version bigint,
    email_key text,
    has_factor boolean,
    second_factor text,
    passkey_login boolean
)
language plpgsql stable security definer set search_path = '' as $$
begin
    return query
    select
        users.user_id, users.role, users.status, users.password_digest, users.credential_version, users.kept_session_id,
        users.api_key_version, users.version, tenants.status, tenants.session_version, tenants.events_per_second, tenants.bytes_per_second,
        tenants.version, users.email_key, users.has_factor, tenants.second_factor,
        tenants.passkey_login
    from identity.tenants
    left join identity.users on users.tenant_id = tenants.tenant_id
        and users.user_id = coalesce(in_user_id, (
            select known.user_id from identity.users as known
            where known.tenant_id = in_tenant_id and known.email_key = in_email_key
        ))
    where tenants.tenant_id = in_tenant_id and tenants.status <> 'deleted';
end
$$;

-- Login with a passkey alone: the passkey determines the tenant.
create function identity.find_passkey(in_credential_id bytea, in_user_handle uuid)
returns table (
    tenant_id text,
    user_id uuid,
    email_key text,
    user_handle uuid,
    factor_id uuid,
    public_key bytea,
    sign_count bigint,
    backup_eligible boolean
)
language sql stable security definer set search_path = '' as $$
    select
        passkeys.tenant_id, users.user_id, users.email_key, users.user_handle, passkeys.factor_id, passkeys.public_key, passkeys.sign_count,
        passkeys.backup_eligible
    from identity.passkeys
    join identity.users on users.user_id = passkeys.user_id
    where passkeys.credential_id = in_credential_id and users.user_handle = in_user_handle
$$;

-- Accept an invite: the token determines the tenant.
create function identity.find_invite(in_digest bytea)
returns table (invite_id uuid, tenant_id text)
language sql stable security definer set search_path = '' as $$
    select invite_id, tenant_id from identity.invites where digests @> array[in_digest]
$$;

-- The purge deletes the users of invites that expired before a time, and invites that were settled before a time, of all
-- tenants. Returns the larger number of rows.
create function identity.purge_invites(in_expired_before timestamptz, in_settled_before timestamptz, in_limit bigint)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with expired as (
        update identity.invites
        set status = 'expired', settled_at = expires_at
        where invite_id = any(array(
            select invite_id from identity.invites
            where status = 'pending' and expires_at <= in_expired_before
            limit in_limit
            for update skip locked
        ))
        returning user_id
    ),
    deleted as (
        delete from identity.users using expired
        where users.user_id = expired.user_id and users.status = 'invited'
    ),
    settled as (
        delete from identity.invites where invite_id = any(array(
            select invite_id from identity.invites
            where settled_at <= in_settled_before
            limit in_limit
            for update skip locked
        ))
        returning 1
    )
    select greatest((select count(*) from expired), (select count(*) from settled))
$$;

-- Request of the platform administrator. The first person that a mail is erased with is its recipient.
create function identity.list_mails(in_after uuid, in_limit integer)
returns table (
    mail_id uuid,
    tenant_id text,
    kind text,
    is_failed boolean,
    user_id uuid,
    created_at timestamptz,
    attempts integer,
    due_at timestamptz,
    last_error text
)
language sql stable security definer set search_path = '' as $$
    select
        mail.outbox_id, mail.tenant_id, mail.kind, mail.dead_lettered_at is not null, coalesce(mail.erased_with_users[1], (
            select users.user_id from identity.users
            where users.tenant_id = mail.tenant_id and users.email_key = mail.erased_with_email
        )),
        mail.created_at, mail.attempts, mail.due_at, mail.last_error
    from identity.outbox as mail
    where mail.kind like 'mail\_%' and (in_after is null or mail.outbox_id > in_after)
    order by mail.outbox_id
    limit in_limit
$$;

-- Confirm a reset: the token determines the tenant.
create function identity.find_reset(in_digest bytea)
returns table (reset_id uuid, tenant_id text)
language sql stable security definer set search_path = '' as $$
    select reset_id, tenant_id from identity.resets where digest = in_digest
$$;

-- Login: accounts that do not exist cost as much as those of all tenants. The Argon2 parameters of the stored passwords (PHC strings, so the
-- third field) with the number of passwords. A sample of about 100,000 users, so that the time is limited; always the same one, so that
-- replicas agree.
create function identity.count_password_costs()
returns table (parameters text, passwords bigint)
language sql stable security definer set search_path = '' as $$
    select split_part(password_digest, '$', 4), count(*)
    from identity.users
        tablesample system (least(100, 100 * 100000 / greatest(1, (
            select reltuples from pg_catalog.pg_class where oid = 'identity.users'::regclass
        )))) repeatable (0)
    where password_digest is not null
    group by 1
$$;

create index users_active_idx on identity.users (has_factor) where status = 'active';
-- Metric: active users of all tenants, and those of them with a second factor. Every replica counts each minute, so it reads the index only.
create function identity.count_active_users()
returns table (users bigint, with_factor bigint)
language sql stable security definer set search_path = '' as $$
    select count(*), count(*) filter (where has_factor) from identity.users where status = 'active'
$$;

-- The rotation of SVC_FACTOR_KEY: the number of secrets of authenticator apps by the id of their key.
create function identity.count_factors_by_key()
returns table (key_id bytea, secrets bigint)
language sql stable security definer set search_path = '' as $$
    select substring(secret from 1 for 8), count(*) from identity.totp_factors where confirmed_at is not null group by 1
$$;

-- The same: the secrets under a key, in the order of their factors.
create function identity.list_factors_of_key(in_key bytea, in_after uuid, in_limit integer)
returns table (tenant_id text, user_id uuid, factor_id uuid, secret bytea)
language sql stable security definer set search_path = '' as $$
    select tenant_id, user_id, factor_id, secret
    from identity.totp_factors
    where substring(secret from 1 for 8) = in_key and factor_id > in_after
    order by factor_id
    limit in_limit
$$;

-- The platform administrator lists all tenants.
create function identity.list_tenants(in_after text, in_limit integer)
returns setof identity.tenants
language sql stable security definer set search_path = '' as $$
    select * from identity.tenants
    where tenant_id > in_after and status <> 'deleted'
    order by tenant_id
    limit in_limit
$$;

-- An operator compares its tenants with its resources. The status of an invite is as stored: a pending one can be expired.
create function identity.list_managed_tenants(in_operator_id text, in_after text, in_limit integer)
returns table (
    tenant_id text,
    owner_uid uuid,
    generation bigint,
    is_drifted boolean,
    invite_status text,
    invite_expires_at timestamptz
)
language sql stable security definer set search_path = '' as $$
    select
        managed.tenant_id, managed.owner_uid, managed.generation, managed.tenant_version <> tenants.version,
        case
            when invites.invite_id is null then 'accepted'
            when invites.status = 'pending' and invites.expires_at <> managed.invite_expires_at then 'revoked'
            else invites.status
        end,
        managed.invite_expires_at
    from identity.managed_tenants as managed
    join identity.tenants on tenants.tenant_id = managed.tenant_id
    left join identity.invites on invites.invite_id = managed.invite_id
    where managed.operator_id = in_operator_id and managed.tenant_id > in_after and managed.released_at is null
        and tenants.status <> 'deleted'
    order by managed.tenant_id
    limit in_limit
$$;

-- Returns the next deleted tenant that is not marked as erased, or null. A tenant that was erased within a minute of its deletion is returned
-- again, because transactions that began before the deletion can still write.
create function identity.find_deleted_tenant(in_after text, in_now timestamptz)
returns text
language sql stable security definer set search_path = '' as $$
    select tenant_id
    from identity.tenants
    where tenant_id > in_after and status = 'deleted'
        and (erased_at is null or erased_at < deleted_at + interval '1 minute' and in_now >= deleted_at + interval '1 minute')
    order by tenant_id
    limit 1
$$;

-- Deletes the counted logins of the given users of a deleted tenant, at most `in_limit` sources. If fewer are deleted, also deletes the users and at
-- most `in_limit` of its invites and of its mails. The caller has locked the tenant before it selected the users. If there was nothing to delete,
-- marks the tenant as erased and returns true. The runtime role can delete only invited users and users that are recorded as deleted.
create function identity.erase_tenant(
    in_tenant_id text, in_now timestamptz, in_user_ids uuid[], in_account_keys bytea[], in_limit bigint
)
returns boolean
language plpgsql volatile security definer set search_path = '' as $$
declare
    erased bigint;
begin
    perform from identity.tenants where tenant_id = in_tenant_id and status = 'deleted';
    if not found then
        raise exception 'the tenant is not deleted';
    end if;
    -- Invites, users, then counted logins: the order of every transaction.
    perform from identity.invites where user_id = any(in_user_ids) order by invite_id for update;
    perform from identity.users where user_id = any(in_user_ids) order by user_id for update;
    erased := identity.delete_counted_logins(in_account_keys, in_limit);
    -- More sources can remain, for example after an attack. The caller finds them through the users, so these are deleted last.
    if erased = in_limit then
        return false;
    end if;
    with mails as (
        delete from identity.outbox where outbox_id = any(array(
            select outbox_id from identity.outbox
            where tenant_id = in_tenant_id and (erased_with_users <> '{}' or erased_with_email is not null)
            limit in_limit
        ))
        returning 1
    ), erased_invites as (
        delete from identity.invites where invite_id = any(array(
            select invite_id from identity.invites where tenant_id = in_tenant_id limit in_limit
        ))
        returning 1
    ), erased_users as (
        delete from identity.users where tenant_id = in_tenant_id and user_id = any(in_user_ids)
        returning 1
    )
    select (select count(*) from mails) + (select count(*) from erased_invites) + (select count(*) from erased_users)
    into erased;
    if erased = 0 then
        update identity.tenants set erased_at = in_now where tenant_id = in_tenant_id;
    end if;
    return erased = 0;
end
$$;

-- Statements that requests wait for are planned once per connection, perhaps while the tables are empty, so their plans use indexes and
-- stay fast when the tables have grown. Otherwise Postgres would plan statements with arrays at every execution, which takes longer than
-- the statements.
do $$
declare
    name text;
begin
    foreach name in array array['find_account', 'save_attempts', 'settle_attempt']
    loop
        execute format(
            'alter function identity.%I set plan_cache_mode = force_generic_plan
                set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off',
            name
        );
    end loop;
end
$$;

revoke execute on all functions in schema identity from public;
grant execute on all functions in schema identity to svc_identity;
revoke execute on function identity.outbox_is_suspended(text) from svc_identity;
