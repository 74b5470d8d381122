//! Simulation of the account status between identity and session: changes, logins, and records that arrive late, repeated, in any order
//! or not at all. identity and the stored records are modelled: identity increases versions as `contract::internal` describes, and a
//! record replaces an older one only. A failing schedule is shortened.

mod postgres;

use contract::identity::{Quota, SecondFactorPolicy};
use contract::internal::{SubjectRecord, TenantRecord};
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A password change, by the owner of a session that is kept, or a reset.
    ChangePassword {
        kept: Option<Index>,
    },
    SetUser(UserStatus),
    SetRole(Role),
    /// The user adds the first factor, or loses the last one.
    SetFactor(bool),
    Delete,
    SetTenant(TenantStatus),
    /// The tenant requires a second factor of other users.
    SetRule(SecondFactorPolicy),
    /// identity verifies a login, with or without a second factor.
    Verify {
        with_factor: bool,
    },
    /// The session service handles the login.
    Issue(Index),
    /// identity sends a current record.
    Push {
        user: bool,
    },
    /// A record arrives. It can arrive again.
    Arrive(Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::option::of(any::<Index>()).prop_map(|kept| Step::ChangePassword { kept }),
        2 => prop_oneof![Just(UserStatus::Active), Just(UserStatus::Disabled)].prop_map(Step::SetUser),
        1 => prop_oneof![Just(Role::Member), Just(Role::Admin)].prop_map(Step::SetRole),
        2 => any::<bool>().prop_map(Step::SetFactor),
        1 => prop::bool::weighted(0.1).prop_map(|delete| if delete { Step::Delete } else { Step::SetFactor(false) }),
        2 => prop_oneof![Just(TenantStatus::Active), Just(TenantStatus::Suspended)].prop_map(Step::SetTenant),
        1 => prop::sample::select(SecondFactorPolicy::ALL).prop_map(Step::SetRule),
        5 => any::<bool>().prop_map(|with_factor| Step::Verify { with_factor }),
        5 => any::<Index>().prop_map(Step::Issue),
        4 => any::<bool>().prop_map(|user| Step::Push { user }),
        6 => any::<Index>().prop_map(Step::Arrive),
    ]
}

/// What a change means for the existing sessions of the user.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Nothing,
    EndsAll,
    EndsAllExcept(SessionId),
}

/// A state of an account in identity, with the change that led to it.
#[derive(Clone, Debug)]
struct Entry<R> {
    record: R,
    effect: Effect,
}

#[derive(Clone, Debug)]
struct StoredSession {
    id: SessionId,
    created_under: AccountVersions,
    /// The records that the login verified.
    user_version: i64,
    tenant_version: i64,
}

/// A verified login without a session.
struct Login {
    user: SubjectRecord,
    tenant: TenantRecord,
    amr: &'static [AuthMethod],
}

#[derive(Clone, Debug)]
enum Record {
    User(SubjectRecord),
    Tenant(TenantRecord),
}

struct Simulation {
    /// All states in identity. The index is the version.
    users: Vec<Entry<SubjectRecord>>,
    tenants: Vec<Entry<TenantRecord>>,
    logins: Vec<Login>,
    on_the_way: Vec<Record>,
    /// The records that the session service stores.
    user: Option<SubjectRecord>,
    tenant: Option<TenantRecord>,
    /// The records that have arrived, and whether they were stored.
    received: Vec<(Record, bool)>,
    sessions: Vec<StoredSession>,
}

impl Simulation {
    fn new() -> Self {
        let tenant = TenantRecord {
            tenant_id: "acme".parse().unwrap(),
            status: TenantStatus::Active,
            session_version: 1,
            quota: Quota::default(),
            second_factor: SecondFactorPolicy::Optional,
            is_deleted: false,
            version: 0,
        };
        let user = SubjectRecord {
            user_id: UserId(Uuid::nil()),
            tenant_id: tenant.tenant_id.clone(),
            role: Role::Member,
            status: UserStatus::Active,
            credential_version: 1,
            kept_session_id: None,
            api_key_version: 1,
            has_factor: false,
            is_deleted: false,
            version: 0,
        };
        Self {
            users: vec![Entry { record: user, effect: Effect::Nothing }],
            tenants: vec![Entry { record: tenant, effect: Effect::Nothing }],
            logins: Vec::new(),
            on_the_way: Vec::new(),
            user: None,
            tenant: None,
            received: Vec::new(),
            sessions: Vec::new(),
        }
    }

    fn user_in_identity(&self) -> &SubjectRecord {
        &self.users.last().unwrap().record
    }

    fn tenant_in_identity(&self) -> &TenantRecord {
        &self.tenants.last().unwrap().record
    }

    fn change_user(&mut self, effect: Effect, change: impl FnOnce(&mut SubjectRecord)) {
        let mut record = self.user_in_identity().clone();
        if record.is_deleted {
            return;
        }
        change(&mut record);
        record.version += 1;
        if effect != Effect::Nothing {
            record.credential_version += 1;
            record.kept_session_id = match effect {
                Effect::EndsAllExcept(kept) => Some(kept),
                _ => None,
            };
        }
        self.users.push(Entry { record, effect });
    }

    fn change_tenant(&mut self, change: impl FnOnce(&mut TenantRecord)) {
        let before = self.tenant_in_identity();
        let mut record = before.clone();
        change(&mut record);
        if record == *before {
            return;
        }
        record.version += 1;
        let suspends = record.status == TenantStatus::Suspended && before.status != record.status;
        let effect = if suspends { Effect::EndsAll } else { Effect::Nothing };
        record.session_version += i64::from(effect == Effect::EndsAll);
        self.tenants.push(Entry { record, effect });
    }

    /// The account status as the session service reads it.
    fn account(&self) -> Option<AccountStatus> {
        let (user, tenant) = self.user.as_ref().zip(self.tenant.as_ref())?;
        let versions = AccountVersions {
            user_id: user.user_id,
            credential_version: user.credential_version,
            session_version: tenant.session_version,
        };
        (!user.is_deleted).then_some(AccountStatus {
            versions,
            role: user.role,
            user_status: user.status,
            tenant_status: tenant.status,
            kept_session_id: user.kept_session_id,
            needs_factor: user.has_factor || tenant.second_factor.requires(user.role),
        })
    }

    fn is_active(&self, session: &StoredSession) -> bool {
        self.account().is_some_and(|account| account.permits_session(session.id, &session.created_under))
    }

    fn active(&self) -> Vec<SessionId> {
        self.sessions.iter().filter(|session| self.is_active(session)).map(|session| session.id).collect()
    }

    /// A record replaces an older one only.
    fn store(&mut self, record: Record) {
        let is_newer = match &record {
            Record::User(new) => self.user.as_ref().is_none_or(|stored| new.version > stored.version),
            Record::Tenant(new) => self.tenant.as_ref().is_none_or(|stored| new.version > stored.version),
        };
        self.received.push((record.clone(), is_newer));
        match record {
            Record::User(new) if is_newer => self.user = Some(new),
            Record::Tenant(new) if is_newer => self.tenant = Some(new),
            Record::User(_) | Record::Tenant(_) => {}
        }
    }

    /// identity requests no session without the factor of the user. The session service rejects one nevertheless.
    fn issue(&mut self, Login { user, tenant, amr }: Login) {
        let created_under = AccountVersions {
            user_id: user.user_id,
            credential_version: user.credential_version,
            session_version: tenant.session_version,
        };
        let (user_version, tenant_version) = (user.version, tenant.version);
        self.store(Record::Tenant(tenant));
        self.store(Record::User(user));
        let id = SessionId(Uuid::from_u128(self.sessions.len() as u128));
        let session = StoredSession { id, created_under, user_version, tenant_version };
        let permitted =
            self.account().is_some_and(|account| account.permits_new_session(&created_under, amr));
        let is_complete = !self.needs_factor() || amr.contains(&AuthMethod::Mfa);
        assert_eq!(permitted, is_complete && self.may_be_active(&session), "{amr:?} {session:?}");
        if permitted {
            self.sessions.push(session);
        }
    }

    /// Returns whether the user has or must have a factor according to the history, up to the stored records.
    fn needs_factor(&self) -> bool {
        let (Some(user), Some(tenant)) = (&self.user, &self.tenant) else { return false };
        let user = &self.users[usize::try_from(user.version).unwrap()].record;
        let rule = self.tenants[usize::try_from(tenant.version).unwrap()].record.second_factor;
        user.has_factor || rule.requires(user.role)
    }

    /// Returns whether the history of the account permits the session, up to the stored records.
    fn may_be_active(&self, session: &StoredSession) -> bool {
        let (Some(user), Some(tenant)) = (&self.user, &self.tenant) else { return false };
        let since = |version: i64| usize::try_from(version).unwrap() + 1;
        let ended = self.users[..since(user.version)].iter().skip(since(session.user_version)).fold(
            false,
            |ended, entry| match entry.effect {
                Effect::Nothing => ended,
                Effect::EndsAll => true,
                Effect::EndsAllExcept(kept) => kept != session.id,
            },
        );
        let mut suspended = self.tenants[..since(tenant.version)].iter().skip(since(session.tenant_version));
        !ended
            && suspended.all(|entry| entry.effect == Effect::Nothing)
            && user.status == UserStatus::Active
            && tenant.status == TenantStatus::Active
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::ChangePassword { kept } => {
                let active = self.active();
                let kept = kept.filter(|_| !active.is_empty()).map(|index| *index.get(&active));
                if self.user_in_identity().status == UserStatus::Active {
                    self.change_user(kept.map_or(Effect::EndsAll, Effect::EndsAllExcept), |_| {});
                }
            }
            Step::SetUser(status) if status != self.user_in_identity().status => {
                let disabled = status == UserStatus::Disabled;
                self.change_user(if disabled { Effect::EndsAll } else { Effect::Nothing }, |user| {
                    user.status = status;
                });
            }
            Step::SetRole(role) => self.change_user(Effect::Nothing, |user| user.role = role),
            Step::SetFactor(has_factor) if has_factor != self.user_in_identity().has_factor => {
                self.change_user(Effect::Nothing, |user| user.has_factor = has_factor);
            }
            Step::Delete => self.change_user(Effect::EndsAll, |user| {
                (user.status, user.is_deleted) = (UserStatus::Disabled, true);
            }),
            Step::SetTenant(status) => self.change_tenant(|tenant| tenant.status = status),
            Step::SetRule(rule) => self.change_tenant(|tenant| tenant.second_factor = rule),
            Step::Verify { with_factor } => {
                let (user, tenant) = (self.user_in_identity().clone(), self.tenant_in_identity().clone());
                if user.status == UserStatus::Active && tenant.status == TenantStatus::Active {
                    let amr = if with_factor { AuthMethod::ALL } else { &[AuthMethod::Pwd] };
                    self.logins.push(Login { user, tenant, amr });
                }
            }
            Step::Issue(which) if !self.logins.is_empty() => {
                let login = self.logins.remove(which.index(self.logins.len()));
                self.issue(login);
            }
            Step::Push { user } => self.push(user),
            Step::Arrive(which) if !self.on_the_way.is_empty() => {
                let record = which.get(&self.on_the_way).clone();
                self.store(record);
            }
            Step::SetUser(_) | Step::SetFactor(_) | Step::Issue(_) | Step::Arrive(_) => {}
        }
        self.verify();
    }

    fn push(&mut self, user: bool) {
        self.on_the_way.push(if user {
            Record::User(self.user_in_identity().clone())
        } else {
            Record::Tenant(self.tenant_in_identity().clone())
        });
    }

    fn verify(&self) {
        for session in &self.sessions {
            assert_eq!(self.is_active(session), self.may_be_active(session), "{session:?}");
        }
    }

    /// The outbox delivers each change in the end. Then no older record or login has an effect.
    fn recover(&mut self) {
        let older = std::mem::take(&mut self.on_the_way);
        self.push(true);
        self.push(false);
        for record in std::mem::take(&mut self.on_the_way).into_iter().chain(older) {
            self.store(record);
        }
        for login in std::mem::take(&mut self.logins) {
            self.issue(login);
        }
        assert_eq!(self.user.as_ref(), Some(self.user_in_identity()));
        assert_eq!(self.tenant.as_ref(), Some(self.tenant_in_identity()));
        self.verify();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::schedules(1_000)))]

    #[test]
    fn a_session_is_active_exactly_as_long_as_the_known_changes_permit_it(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut simulation = Simulation::new();
        for step in steps {
            simulation.run(step);
        }
        simulation.recover();
    }
}
