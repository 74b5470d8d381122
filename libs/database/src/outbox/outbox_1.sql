-- The outbox of a schema: messages that leave the database after the transaction that writes them. A migration of the schema includes
-- this file (libs/database/src/migrations.rs), and the name of the schema replaces `{schema}`. A released version of this file does not
-- change: a later change is another file, which a new migration of each schema includes.

create table {schema}.outbox (
    outbox_id uuid primary key,
    tenant_id text collate "C" not null,
    kind text collate "C" not null,
    payload jsonb not null,
    -- The people that the message is erased with: users, and an address that may belong to none.
    erased_with_users uuid[] not null default '{}',
    erased_with_email text collate "C",
    -- Whether the message waits while its tenant is suspended. The same for all messages of a kind.
    waits_while_suspended boolean not null default false,
    created_at timestamptz not null,
    -- When the next attempt is due: the back-off, or the end of the lease of the relay that claimed the message.
    due_at timestamptz not null,
    attempts integer not null default 0,
    -- The claim of the relay that delivers the message; null if no relay does.
    fence uuid,
    dead_lettered_at timestamptz,
    last_error text collate "C",
    -- Messages with one key become one message with their number, until a relay claims it. The insert finds keys by their prefix.
    fold_key text collate "C",
    -- The tenant, or `_`: messages take turns in the claim. Set by the trigger `outbox_turn`.
    turn text collate "C" not null
);
create unique index outbox_fold_key on {schema}.outbox (fold_key) where attempts = 0;
-- The claim visits the turns with a message of a kind, and the oldest message of a turn.
create index outbox_turn_idx on {schema}.outbox (kind, turn, due_at) where dead_lettered_at is null;
create index outbox_leased_idx on {schema}.outbox (turn) where fence is not null;

-- Turns of which no message is claimed until a time: a row each, however many messages wait.
create table {schema}.outbox_pauses (
    kind text collate "C" not null,
    turn text collate "C" not null,
    until timestamptz not null,
    error text collate "C",
    primary key (kind, turn)
);

-- Turns of which too many messages of a kind wait: see `outbox_insert`. The relay updates it with its metrics.
create table {schema}.outbox_full (
    kind text collate "C" not null,
    turn text collate "C" not null,
    primary key (kind, turn)
);

-- Sets the turn that a message takes: its tenant. A schema can replace this function.
create function {schema}.outbox_turn()
returns trigger
language plpgsql set search_path = '' as $$
begin
    new.turn := new.tenant_id;
    return new;
end
$$;
create trigger outbox_turn before insert on {schema}.outbox for each row execute function {schema}.outbox_turn();

-- Whether the tenant is suspended. A schema can replace this function.
create function {schema}.outbox_is_suspended(in_tenant_id text)
returns boolean
language sql immutable set search_path = '' as $$
    select false
$$;

alter table {schema}.outbox enable row level security;
alter table {schema}.outbox force row level security;
create policy outbox_tenant on {schema}.outbox to svc_{schema}
    using (tenant_id = current_setting('svc.tenant_id', true));
create policy outbox_migrator on {schema}.outbox to svc_{schema}_migrator using (true);

alter table {schema}.outbox_full enable row level security;
alter table {schema}.outbox_full force row level security;
create policy outbox_full_tenant on {schema}.outbox_full to svc_{schema}
    using (turn in (current_setting('svc.tenant_id', true), '_'));
create policy outbox_full_migrator on {schema}.outbox_full to svc_{schema}_migrator using (true);

grant insert, select (fold_key, attempts, payload), update (payload) on {schema}.outbox to svc_{schema};
grant select on {schema}.outbox_full to svc_{schema};

-- Writes messages in the transaction that causes them. Messages with the same `fold_key` and `fold_member` that wait for the relay
-- are one row with their number. The first ten members of a key have their own row, and a few more if they are written at the same
-- time; all further ones share one. It lists at most 100 members.
--
-- If too many messages of the kind wait for the tenant, `when_full` decides: `accept`; `reject` the transaction; `fold` all messages of
-- a name into one without the details of an account; `drop` the message.
create function {schema}.outbox_insert(in_tenant_id text, in_now timestamptz, in_messages jsonb)
returns void
language plpgsql set search_path = '' as $$
begin
    if exists (
        select
        from jsonb_to_recordset(in_messages) as messages (kind text, when_full text)
        join {schema}.outbox_full as filled on filled.kind = messages.kind and filled.turn = in_tenant_id
        where messages.when_full = 'reject'
    ) then
        raise exception 'too many messages of the tenant % wait', in_tenant_id
            using errcode = 'check_violation', constraint = 'outbox_full';
    end if;
    insert into {schema}.outbox (
        outbox_id, tenant_id, kind, payload, erased_with_users, erased_with_email, waits_while_suspended, created_at, due_at,
        fold_key
    )
    select messages.outbox_id, in_tenant_id, messages.kind, case
            when messages.when_full = 'fold' and is_full
            then messages.payload #- '{event,user_id}' #- '{event,email}' #- '{event,ip}'
            else messages.payload
        end, messages.erased_with_users,
        messages.erased_with_email, messages.waits_while_suspended, in_now,
        -- The clock of the process can be ahead.
        least(in_now, clock_timestamp()) + messages.delay_ms * interval '1 millisecond', case
            when messages.fold_key is null then null
            when messages.when_full = 'fold' and is_full
            then split_part(messages.fold_key, ':', 1) || ':' || in_tenant_id || ':full'
            when exists (
                select from {schema}.outbox as waiting
                where waiting.attempts = 0 and waiting.fold_key = messages.fold_key || ':' || messages.fold_member
            ) or (
                -- The semicolon follows the colon.
                select count(*) from {schema}.outbox as waiting
                where waiting.attempts = 0
                    and waiting.fold_key > messages.fold_key || ':' and waiting.fold_key < messages.fold_key || ';'
            ) < 10 then messages.fold_key || ':' || messages.fold_member
            else messages.fold_key
        end
    from jsonb_to_recordset(in_messages) as messages (
        outbox_id uuid, kind text, payload jsonb, erased_with_users uuid[], erased_with_email text, waits_while_suspended boolean,
        delay_ms bigint, fold_key text, fold_member text, when_full text
    )
    cross join lateral (
        select messages.when_full in ('fold', 'drop') and exists (
            select from {schema}.outbox_full as filled
            where filled.kind = messages.kind and filled.turn in (in_tenant_id, '_')
        ) as is_full
    ) as state
    where not (messages.when_full = 'drop' and is_full)
    on conflict (fold_key) where attempts = 0 do update
    set payload = outbox.payload || jsonb_build_object(
        'count', (outbox.payload ->> 'count')::bigint + 1,
        'members', case
            when outbox.payload -> 'members' @> (excluded.payload -> 'members')
                or jsonb_array_length(outbox.payload -> 'members') >= 100
            then outbox.payload -> 'members'
            else (outbox.payload -> 'members') || (excluded.payload -> 'members')
        end
    );
end
$$;

-- The relay delivers messages of all tenants. It claims messages that are due with a lease. Kinds come first in the given
-- order. Within a kind, tenants take turns in the order of their ids, beginning after the turn `in_after`, so that the backlog of one tenant does
-- not delay the messages of another. A tenant has at most `in_share` leases, so that its slow deliveries do not either. Paused turns are
-- left out.
create function {schema}.outbox_claim(
    in_fence uuid,
    in_now timestamptz,
    in_lease_until timestamptz,
    in_limit integer,
    in_kinds text[],
    in_share integer,
    in_after text
)
returns table (outbox_id uuid, tenant_id text, kind text, payload jsonb, attempts integer, fence uuid, turn text)
language plpgsql volatile security definer set search_path = '' as $$
declare
    remaining integer := in_limit;
    claimed integer;
    next_kind text;
    -- The last turn that was claimed, the last one that was visited, and the next one.
    last_turn text;
    visited text;
    next_turn text;
    waits boolean;
    share integer;
    is_second_part boolean;
    -- The next turns, and how many messages of each can be leased.
    turns text[];
    shares integer[];
    -- Turns that are paused, or with messages that another relay claims now.
    closed text[];
begin
    -- The clock of the process can be ahead. Otherwise, other processes would wait for the difference after a crash.
    in_lease_until := least(in_now, clock_timestamp()) + (in_lease_until - in_now);
    in_now := least(in_now, clock_timestamp());
    foreach next_kind in array in_kinds loop
        last_turn := in_after;
        closed := array(
            select pause.turn from {schema}.outbox_pauses as pause where pause.kind = next_kind and pause.until > in_now
        );
        while remaining > 0 loop
            turns := '{}';
            shares := '{}';
            visited := last_turn;
            is_second_part := false;
            while cardinality(turns) < remaining loop
                select
                    message.turn, message.waits_while_suspended, in_share - (
                        select count(*)::integer
                        from {schema}.outbox as leased
                        where leased.fence is not null
                            and leased.turn = message.turn
                            and leased.kind = any(in_kinds)
                            and leased.due_at > in_now
                    )
                into next_turn, waits, share
                from {schema}.outbox as message
                where message.dead_lettered_at is null
                    and message.kind = next_kind
                    and message.turn > visited
                    and message.due_at <= in_now
                order by message.turn
                limit 1;
                if next_turn is null and not is_second_part then
                    visited := '';
                    is_second_part := true;
                    continue;
                end if;
                exit when next_turn is null or is_second_part and next_turn > last_turn;
                visited := next_turn;
                if share > 0 and visited <> all(closed) and not (waits and {schema}.outbox_is_suspended(visited)) then
                    turns := turns || visited;
                    shares := shares || share;
                end if;
            end loop;
            exit when turns = '{}';
            return query
                with leased as (
                    update {schema}.outbox as message
                    set fence = in_fence, due_at = in_lease_until, attempts = message.attempts + 1
                    -- An array, because the estimate of a join with a limit that is not constant is a tenth of the table.
                    where message.outbox_id = any(array(
                        select due.outbox_id
                        from unnest(turns, shares) as open (turn, share)
                        cross join lateral (
                            select message.outbox_id
                            from {schema}.outbox as message
                            where message.dead_lettered_at is null
                                and message.kind = next_kind
                                and message.turn = open.turn
                                and message.due_at <= in_now
                            order by message.due_at
                            limit least(open.share, remaining / cardinality(turns))
                            for update skip locked
                        ) as due
                    ))
                    returning message.*
                )
                select
                    leased.outbox_id, leased.tenant_id, leased.kind, leased.payload, leased.attempts,
                    leased.fence, leased.turn
                from leased
                order by array_position(turns, leased.turn);
            get diagnostics claimed = row_count;
            if claimed = 0 then
                closed := closed || turns;
            end if;
            remaining := remaining - claimed;
            last_turn := turns[cardinality(turns)];
        end loop;
    end loop;
end
$$;

-- The relay settles messages that it has claimed: `delivered`, `retried` or `dead_lettered`. A relay that lost its lease settles
-- nothing. The back-off counts from the time of the database if the clock of the process is ahead.
create function {schema}.outbox_settle(
    in_outbox_ids uuid[], in_fences uuid[], in_states text[], in_due_at timestamptz[], in_errors text[], in_now timestamptz
)
returns void
language plpgsql volatile security definer set search_path = '' as $$
begin
    with outcomes as (
        select *
        from unnest(in_outbox_ids, in_fences, in_states, in_due_at, in_errors) as outcomes (outbox_id, fence, state, due_at, error)
    ), delivered as (
        delete from {schema}.outbox as message
        using outcomes
        where message.outbox_id = outcomes.outbox_id and message.fence = outcomes.fence and outcomes.state = 'delivered'
    )
    update {schema}.outbox as message
    set fence = null,
        due_at = coalesce(least(outcomes.due_at, clock_timestamp() + (outcomes.due_at - in_now)), message.due_at),
        dead_lettered_at = case when outcomes.state = 'dead_lettered' then in_now end,
        last_error = outcomes.error
    from outcomes
    where message.outbox_id = outcomes.outbox_id and message.fence = outcomes.fence and outcomes.state <> 'delivered';
end
$$;

-- The relay cannot deliver the messages of these turns for a while, which counts like a back-off.
create function {schema}.outbox_postpone(
    in_turns text[], in_kinds text[], in_now timestamptz, in_until timestamptz, in_error text
)
returns void
language sql volatile security definer set search_path = '' as $$
    delete from {schema}.outbox_pauses where until <= least(in_now, clock_timestamp());
    insert into {schema}.outbox_pauses as pause (kind, turn, until, error)
    select kinds.kind, turns.turn, least(in_until, clock_timestamp() + (in_until - in_now)), in_error
    from unnest(in_kinds) as kinds (kind), unnest(in_turns) as turns (turn)
    order by kinds.kind, turns.turn
    on conflict (kind, turn) do update set until = excluded.until, error = excluded.error
$$;

-- Metrics of the relay. Returns numbers only. Updates the turns of which at least `in_max` messages of a kind wait.
create function {schema}.outbox_stats(in_now timestamptz, in_kinds text[], in_max bigint)
returns table (oldest_seconds double precision, pending bigint, dead_lettered bigint)
language sql volatile security definer set search_path = '' as $$
    with messages as (
        -- The check of each message would be slow.
        select
            kind, turn, tenant_id, waits_while_suspended as waits,
            min(created_at) filter (where dead_lettered_at is null) as oldest,
            count(*) filter (where dead_lettered_at is null) as pending,
            count(*) filter (where dead_lettered_at is not null) as dead_lettered
        from {schema}.outbox
        where kind = any(in_kinds)
        group by kind, turn, tenant_id, waits_while_suspended
    ), filled as (
        select kind, turn from messages group by kind, turn having sum(messages.pending) >= in_max
    ), freed as (
        delete from {schema}.outbox_full as old
        where old.kind = any(in_kinds)
            and not exists (select from filled where filled.kind = old.kind and filled.turn = old.turn)
    ), marked as (
        insert into {schema}.outbox_full (kind, turn)
        select kind, turn from filled order by kind, turn
        on conflict do nothing
    )
    select
        -- At least 0, because the clocks of two processes differ.
        greatest(0, coalesce(extract(epoch from in_now - min(oldest) filter (
            where not (waits and {schema}.outbox_is_suspended(tenant_id))
        )), 0)),
        coalesce(sum(messages.pending), 0)::bigint,
        coalesce(sum(messages.dead_lettered), 0)::bigint
    from messages
$$;

-- `outbox list`: undelivered messages of all tenants, without their payloads.
create function {schema}.outbox_list(in_limit integer)
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
        message.outbox_id, message.tenant_id, message.kind,
        case
            when message.dead_lettered_at is not null then 'dead_lettered'
            when message.waits_while_suspended and {schema}.outbox_is_suspended(message.tenant_id) then 'held'
            else 'pending'
        end,
        message.created_at, greatest(message.due_at, pause.until), message.attempts, coalesce(message.last_error, pause.error)
    from {schema}.outbox as message
    left join {schema}.outbox_pauses as pause
        on pause.kind = message.kind and pause.turn = message.turn and message.dead_lettered_at is null
    order by message.dead_lettered_at is null, message.created_at, message.outbox_id
    limit in_limit
$$;

-- `outbox retry`: schedules one dead-lettered message, or all of them, for delivery.
create function {schema}.outbox_retry(in_outbox_id uuid, in_now timestamptz)
returns bigint
language sql volatile security definer set search_path = '' as $$
    with retried as (
        update {schema}.outbox
        set dead_lettered_at = null, due_at = least(in_now, clock_timestamp()), attempts = 0
        where dead_lettered_at is not null and (in_outbox_id is null or outbox_id = in_outbox_id)
        returning 1
    )
    select count(*) from retried
$$;

-- Plans that were made while the table was empty stay fast when it has grown.
do $$
declare
    name text;
begin
    foreach name in array array['outbox_insert', 'outbox_claim', 'outbox_settle', 'outbox_postpone']
    loop
        execute format(
            'alter function {schema}.%I set plan_cache_mode = force_generic_plan
                set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off',
            name
        );
    end loop;
end
$$;
