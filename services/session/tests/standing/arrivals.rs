//! Every order in which a login and the records of what happens around it can arrive. What holds is said by the history, not
//! by the versions that the records carry.

use contract::internal::{Credential, SubjectRecord, TenantRecord};
use contract::{Role, TenantStatus, UserStatus};
use hashing::RawToken;
use tenancy::{SessionId, TenantId};

use crate::context::{Context, subject, tenant};

/// What happens in identity, in this order. Session hears of it in any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Change,
    Promotion,
    Suspension,
    Resumption,
    Reset,
    Disabling,
}

const HISTORY: [Event; 6] =
    [Event::Change, Event::Promotion, Event::Suspension, Event::Resumption, Event::Reset, Event::Disabling];

/// How many events the login has seen. Whoever is disabled, or suspended with the tenant, is refused by identity already and
/// never gets here. Seven of them, so that no part of an order decides alone which one goes with it.
const LOGINS: [usize; 7] = [0, 1, 2, 4, 5, 0, 2];

impl Event {
    const fn is_of_tenant(self) -> bool {
        matches!(self, Self::Suspension | Self::Resumption)
    }

    fn place(self) -> usize {
        HISTORY.iter().position(|event| *event == self).unwrap()
    }
}

/// What arrives at session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Issue,
    Record(Event),
}

/// One user of one tenant, whose login falls between two events of the history.
struct Story {
    user: SubjectRecord,
    tenant: TenantRecord,
    /// How many events the login has seen.
    login: usize,
    /// Up to where session has heard of the user and of the tenant.
    heard: [usize; 2],
    /// The session, if the login yielded one.
    session: Option<(SessionId, RawToken)>,
    /// Whether the password is changed with that session, which then stays.
    kept: bool,
    /// What has arrived.
    taken: Vec<Arrival>,
}

impl Story {
    fn new(number: usize, login: usize) -> Self {
        let tenant_id: TenantId = format!("t-{number}").parse().unwrap();
        Self {
            user: SubjectRecord { tenant_id: tenant_id.clone(), ..subject() },
            tenant: TenantRecord { tenant_id, ..tenant() },
            login,
            heard: [0, 0],
            session: None,
            kept: false,
            taken: Vec::new(),
        }
    }

    /// The user's record once so many events have happened.
    fn user_after(&self, events: usize) -> SubjectRecord {
        let mut user = self.user.clone();
        for event in HISTORY.iter().take(events).filter(|event| !event.is_of_tenant()) {
            user.version += 1;
            match event {
                Event::Change => {
                    user.credential_version += 1;
                    user.kept_session_id = self.session.as_ref().map(|(id, _)| *id).filter(|_| self.kept);
                }
                Event::Promotion => user.role = Role::Admin,
                Event::Disabling | Event::Reset => {
                    user.credential_version += 1;
                    user.kept_session_id = None;
                }
                Event::Suspension | Event::Resumption => {}
            }
            if *event == Event::Disabling {
                user.status = UserStatus::Disabled;
            }
        }
        user
    }

    /// The same of the tenant.
    fn tenant_after(&self, events: usize) -> TenantRecord {
        let mut tenant = self.tenant.clone();
        for event in HISTORY.iter().take(events).filter(|event| event.is_of_tenant()) {
            tenant.version += 1;
            if *event == Event::Suspension {
                tenant.session_version += 1;
                tenant.status = TenantStatus::Suspended;
            } else {
                tenant.status = TenantStatus::Active;
            }
        }
        tenant
    }

    /// Lets one thing arrive.
    async fn take(&mut self, context: &Context, arrival: Arrival) {
        self.taken.push(arrival);
        let event = match arrival {
            Arrival::Issue => return self.issue(context).await,
            Arrival::Record(event) => event,
        };
        let events = event.place() + 1;
        if event.is_of_tenant() {
            context.tell_tenant(&self.tenant_after(events)).await;
        } else {
            // The password is changed with the session that there is by then, if it was made before.
            let changed_now = self.heard[0] <= Event::Change.place();
            if changed_now && self.login <= Event::Change.place() && self.session.is_some() && !self.is_over()
            {
                self.kept = true;
            }
            context.tell_subject(&self.user_after(events)).await;
        }
        self.hear(usize::from(event.is_of_tenant()), events);
    }

    async fn issue(&mut self, context: &Context) {
        let records = (self.user_after(self.login), self.tenant_after(self.login));
        self.hear(0, self.login);
        self.hear(1, self.login);
        let token = context.issue(&records.0, &records.1).await;
        assert_eq!(token.is_some(), !self.is_over(), "login after {} events, {:?}", self.login, self.taken);
        if let Some(token) = token {
            let told = context.introspect(&[&token]).await.remove(0).unwrap();
            let Credential::Session { session_id, .. } = told.credential else {
                panic!("a session is no key")
            };
            self.session = Some((session_id, token));
        }
    }

    fn hear(&mut self, of: usize, events: usize) {
        self.heard[of] = self.heard[of].max(events);
    }

    /// Whether session has heard of something after the login that ends what the login made.
    fn is_over(&self) -> bool {
        HISTORY.iter().enumerate().skip(self.login).any(|(place, event)| {
            let heard = place < self.heard[usize::from(event.is_of_tenant())];
            heard
                && match event {
                    Event::Change => !self.kept,
                    Event::Reset | Event::Disabling | Event::Suspension => true,
                    Event::Promotion | Event::Resumption => false,
                }
        })
    }

    /// The role that the session has now, if it lives.
    fn role(&self) -> Option<Role> {
        let promoted = self.heard[0] > Event::Promotion.place();
        let role = if promoted { Role::Admin } else { Role::Member };
        self.session.as_ref().filter(|_| !self.is_over()).map(|_| role)
    }
}

/// Every order of these.
fn orders(of: &[Arrival]) -> Vec<Vec<Arrival>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for (place, first) in of.iter().enumerate() {
        let others: Vec<_> =
            of.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, it)| *it).collect();
        orders.extend(orders_after(*first, &others));
    }
    orders
}

fn orders_after(first: Arrival, others: &[Arrival]) -> impl Iterator<Item = Vec<Arrival>> {
    orders(others).into_iter().map(move |mut order| {
        order.insert(0, first);
        order
    })
}

/// Looks at every session there is: what it may do, or that it is dead, is what its story says.
async fn check(context: &Context, stories: &[Story]) {
    let made: Vec<_> = stories.iter().filter_map(|story| Some((story, &story.session.as_ref()?.1))).collect();
    for some in made.chunks(MOST_LOOK_UPS) {
        let tokens: Vec<_> = some.iter().map(|(_, token)| *token).collect();
        for ((story, _), told) in some.iter().zip(context.introspect(&tokens).await) {
            let role = told.map(|subject| match subject.credential {
                Credential::Session { role, .. } => role,
                Credential::ApiKey { .. } => panic!("a session is no key"),
            });
            assert_eq!(role, story.role(), "login after {} events, {:?}", story.login, story.taken);
        }
    }
}

/// So many share the database's connections.
const AT_ONCE: usize = 12;
/// So many credentials are looked up with one question.
const MOST_LOOK_UPS: usize = 256;

#[tokio::test]
async fn nothing_depends_on_the_order_in_which_a_login_and_the_records_arrive() {
    let context = Context::start().await;
    let mut arrivals = vec![Arrival::Issue];
    arrivals.extend(HISTORY.map(Arrival::Record));
    let orders = orders(&arrivals);
    assert_eq!(orders.len(), 5_040);
    let story = |number| Story::new(number, LOGINS[number % LOGINS.len()]);
    let mut stories: Vec<_> = (0..orders.len()).map(story).collect();
    for turn in 0..arrivals.len() {
        for (stories, orders) in stories.chunks_mut(AT_ONCE).zip(orders.chunks(AT_ONCE)) {
            let turns =
                stories.iter_mut().zip(orders).map(|(story, order)| story.take(&context, order[turn]));
            testkit::join_all(turns).await;
        }
        check(&context, &stories).await;
    }
}
