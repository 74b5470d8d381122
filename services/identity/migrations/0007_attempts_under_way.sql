-- Attempts that are under way are told apart from failures: they count once it is known what came of them.

alter table identity.attempts
    -- When those began that are under way. An entry is believed for half a minute: its process may be gone.
    add column begun timestamptz[] not null default '{}',
    -- What the last attempt was told: that too many are under way.
    add column crowded boolean not null default false,
    -- When the account was last logged in to from there; the row stays for a month then.
    add column last_success_at timestamptz;

-- Whether there was such an account when it was last tried. An account that never was is forgotten, locked or not; of
-- those that are here already nobody knows. A name is an HMAC still: who has an account cannot be read here.
alter table identity.failures add column of_user boolean not null default true;

-- They say nothing, and are not written any more.
delete from identity.failures where in_a_row = 0;
