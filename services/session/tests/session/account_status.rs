//! Orders in which a login and the records of changes around it can arrive: for each login, any three messages arrive in every
//! order. The expected result follows from the history, not from the versions in the records.

use std::collections::HashSet;

use contract::internal::{Credential, SubjectRecord, TenantRecord};
use contract::{Role, TenantStatus, UserStatus};
use hashing::RawToken;
use tenancy::{SessionId, TenantId};

use crate::context::{Context, subject, tenant};

/// A change in identity. The changes happen in this order; their records arrive in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// How many changes precede the login. identity rejects a login while the tenant is suspended or the user disabled, so those
/// positions are missing. Seven entries, so that the entries and the orders combine evenly.
const LOGINS: [usize; 7] = [0, 1, 2, 4, 5, 0, 2];

impl Event {
    const fn is_of_tenant(self) -> bool {
        matches!(self, Self::Suspension | Self::Resumption)
    }

    fn place(self) -> usize {
        HISTORY.iter().position(|event| *event == self).unwrap()
    }
}

/// A message that arrives at session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Arrival {
    Issue,
    Record(Event),
}

/// One user of one tenant with one login, for one order of arrival.
struct Scenario {
    user: SubjectRecord,
    tenant: TenantRecord,
    /// How many changes precede the login.
    login: usize,
    /// How many changes session has received for the user and for the tenant.
    received: [usize; 2],
    /// The session, if one was issued.
    session: Option<(SessionId, RawToken)>,
    /// Whether the password is changed with that session, which keeps it.
    kept: bool,
    /// The arrivals so far.
    arrived: Vec<Arrival>,
}

impl Scenario {
    fn new(number: usize, login: usize) -> Self {
        let tenant_id: TenantId = format!("t-{number}").parse().unwrap();
        Self {
            user: SubjectRecord { tenant_id: tenant_id.clone(), ..subject() },
            tenant: TenantRecord { tenant_id, ..tenant() },
            login,
            received: [0, 0],
            session: None,
            kept: false,
            arrived: Vec::new(),
        }
    }

    /// The user's record after a number of changes.
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

    /// The tenant's record after a number of changes.
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

    /// Delivers one message.
    async fn deliver(&mut self, context: &Context, arrival: Arrival) {
        self.arrived.push(arrival);
        let event = match arrival {
            Arrival::Issue => return self.issue(context).await,
            Arrival::Record(event) => event,
        };
        let events = event.place() + 1;
        if event.is_of_tenant() {
            context.apply_tenant(&self.tenant_after(events)).await;
        } else {
            // The password is changed with the session if the session was issued before.
            let changed_now = self.received[0] <= Event::Change.place();
            if changed_now
                && self.login <= Event::Change.place()
                && self.session.is_some()
                && !self.is_invalid()
            {
                self.kept = true;
            }
            context.apply_subject(&self.user_after(events)).await;
        }
        self.receive(usize::from(event.is_of_tenant()), events);
    }

    async fn issue(&mut self, context: &Context) {
        let records = (self.user_after(self.login), self.tenant_after(self.login));
        self.receive(0, self.login);
        self.receive(1, self.login);
        let token = context.issue(&records.0, &records.1).await;
        assert_eq!(
            token.is_some(),
            !self.is_invalid(),
            "login after {} events, {:?}",
            self.login,
            self.arrived
        );
        if let Some(token) = token {
            let subject = context.introspect(&[&token]).await.remove(0).unwrap();
            let Credential::Session { session_id, .. } = subject.credential else {
                panic!("expected a session")
            };
            self.session = Some((session_id, token));
        }
    }

    fn receive(&mut self, record: usize, events: usize) {
        self.received[record] = self.received[record].max(events);
    }

    /// Returns whether session has received a change after the login that invalidates its session.
    fn is_invalid(&self) -> bool {
        HISTORY.iter().enumerate().skip(self.login).any(|(place, event)| {
            let received = place < self.received[usize::from(event.is_of_tenant())];
            received
                && match event {
                    Event::Change => !self.kept,
                    Event::Reset | Event::Disabling | Event::Suspension => true,
                    Event::Promotion | Event::Resumption => false,
                }
        })
    }

    /// The current role of the session, if it is active.
    fn role(&self) -> Option<Role> {
        let promoted = self.received[0] > Event::Promotion.place();
        let role = if promoted { Role::Admin } else { Role::Member };
        self.session.as_ref().filter(|_| !self.is_invalid()).map(|_| role)
    }
}

/// Returns every order of the messages.
fn orders(messages: &[Arrival]) -> Vec<Vec<Arrival>> {
    if messages.is_empty() {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for (place, first) in messages.iter().enumerate() {
        let others: Vec<_> =
            messages.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, it)| *it).collect();
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

/// Compares the state and role of every issued session with its scenario.
async fn check(context: &Context, scenarios: &[Scenario]) {
    let issued: Vec<_> =
        scenarios.iter().filter_map(|scenario| Some((scenario, &scenario.session.as_ref()?.1))).collect();
    for chunk in issued.chunks(MAX_BATCH) {
        let tokens: Vec<_> = chunk.iter().map(|(_, token)| *token).collect();
        for ((scenario, _), subject) in chunk.iter().zip(context.introspect(&tokens).await) {
            let role = subject.map(|subject| match subject.credential {
                Credential::Session { role, .. } => role,
                _ => panic!("expected a session"),
            });
            assert_eq!(
                role,
                scenario.role(),
                "login after {} events, {:?}",
                scenario.login,
                scenario.arrived
            );
        }
    }
}

/// Returns every choice of three messages of an order, in this order.
fn triples(order: &[Arrival]) -> impl Iterator<Item = [Arrival; 3]> {
    let places = (0..order.len()).flat_map(|c| (0..c).flat_map(move |b| (0..b).map(move |a| [a, b, c])));
    places.map(|places| places.map(|place| order[place]))
}

/// Concurrent scenarios, which share the connections of the database.
const CONCURRENCY: usize = 12;
/// Credentials per introspection request.
const MAX_BATCH: usize = 256;
/// The stride of the tested orders. All 5,040 take minutes.
const SAMPLE: usize = 7;

#[tokio::test]
async fn result_does_not_depend_on_the_order_in_which_login_and_records_arrive() {
    let context = Context::start().await;
    let mut arrivals = vec![Arrival::Issue];
    arrivals.extend(HISTORY.map(Arrival::Record));
    let orders: Vec<_> = orders(&arrivals).into_iter().step_by(SAMPLE).collect();
    let scenario = |number| Scenario::new(number, LOGINS[number % LOGINS.len()]);
    let mut scenarios: Vec<_> = (0..orders.len()).map(scenario).collect();
    let combined: HashSet<_> = scenarios
        .iter()
        .zip(&orders)
        .flat_map(|(scenario, order)| triples(order).map(|triple| (scenario.login, triple)))
        .collect();
    assert_eq!(combined.len(), 5 * (7 * 6 * 5), "each login with each order of three messages");
    for turn in 0..arrivals.len() {
        for (scenarios, orders) in scenarios.chunks_mut(CONCURRENCY).zip(orders.chunks(CONCURRENCY)) {
            let turns = scenarios
                .iter_mut()
                .zip(orders)
                .map(|(scenario, order)| scenario.deliver(&context, order[turn]));
            testkit::join_all(turns).await;
        }
        check(&context, &scenarios).await;
    }
}
