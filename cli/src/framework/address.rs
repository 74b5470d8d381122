//! Objects as people name them: users and invites by e-mail address or id, other objects by id. A part of an id is sufficient if only one
//! object matches.
//!
//! The ids are `UUIDv7`: the start is the time of creation, and the end is random. Both ends are accepted: tables show the start,
//! and the end differs in fewer characters.

use std::fmt::{self, Display};
use std::str::FromStr;

use contract::ProblemKind;
use contract::identity::{Invite, InviteStatus, User};
use contract::routes::{self, Route};
use contract::session::{ApiKey, Session};
use serde::de::DeserializeOwned;
use tenancy::{InviteId, KeyId, SessionId, UserId};

use crate::framework::api::{Api, ListLimit};
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::prompt::Prompt;

/// Fewest characters of a part of an id.
const MIN_PART: usize = 4;
/// Most objects that the error for an ambiguous part lists.
const MAX_CANDIDATES: usize = 10;

/// A complete id, or characters of its start or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IdRef<I> {
    Id(I),
    Part(String),
}

impl<I: FromStr> FromStr for IdRef<I> {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let digits = text.chars().filter(char::is_ascii_hexdigit).count();
        let is_part = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if is_part && digits >= MIN_PART {
            Ok(Self::Part(text.to_ascii_lowercase()))
        } else {
            Err(format!("expected an id, or at least {MIN_PART} characters of its start or end"))
        }
    }
}

impl<I: Display> IdRef<I> {
    fn matches(&self, id: &I) -> bool {
        let id = id.to_string();
        match self {
            Self::Id(wanted) => wanted.to_string() == id,
            Self::Part(part) => id.starts_with(part) || id.ends_with(part),
        }
    }
}

impl<I: Display> Display for IdRef<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Part(part) => part.fmt(f),
        }
    }
}

/// An object by e-mail address or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EmailOrId<I> {
    Email(String),
    Id(IdRef<I>),
}

/// A user.
pub(crate) type UserRef = EmailOrId<UserId>;
/// An invite; by e-mail address only a pending one.
pub(crate) type InviteRef = EmailOrId<InviteId>;

impl<I: FromStr> FromStr for EmailOrId<I> {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.contains('@') {
            return Ok(Self::Email(text.to_owned()));
        }
        text.parse()
            .map(Self::Id)
            .map_err(|error: String| error.replacen("an id", "an e-mail address, an id", 1))
    }
}

/// An object with an id.
pub(crate) trait Addressed: DeserializeOwned {
    type Id: Copy + Display;

    /// Lists the objects.
    const LIST: &'static Route;
    /// Path of an object, for the text of the error if none matches.
    const ROUTE: &'static Route;
    const PLURAL: &'static str;

    fn id(&self) -> Self::Id;

    /// What a person recognises the object by.
    fn label(&self) -> String;
}

impl Addressed for User {
    type Id = UserId;

    const LIST: &'static Route = &routes::LIST_USERS;
    const ROUTE: &'static Route = &routes::GET_USER;
    const PLURAL: &'static str = "users";

    fn id(&self) -> UserId {
        self.user_id
    }

    fn label(&self) -> String {
        self.email.clone()
    }
}

impl Addressed for Invite {
    type Id = InviteId;

    const LIST: &'static Route = &routes::LIST_INVITES;
    const ROUTE: &'static Route = &routes::REVOKE_INVITE;
    const PLURAL: &'static str = "invites";

    fn id(&self) -> InviteId {
        self.invite_id
    }

    fn label(&self) -> String {
        format!("{} ({})", self.email, self.status)
    }
}

impl Addressed for ApiKey {
    type Id = KeyId;

    const LIST: &'static Route = &routes::LIST_API_KEYS;
    const ROUTE: &'static Route = &routes::REVOKE_API_KEY;
    const PLURAL: &'static str = "API keys";

    fn id(&self) -> KeyId {
        self.id
    }

    fn label(&self) -> String {
        format!("\"{}\"", self.name)
    }
}

impl Addressed for Session {
    type Id = SessionId;

    const LIST: &'static Route = &routes::LIST_SESSIONS;
    const ROUTE: &'static Route = &routes::REVOKE_SESSION;
    const PLURAL: &'static str = "sessions";

    fn id(&self) -> SessionId {
        self.id
    }

    fn label(&self) -> String {
        let client =
            self.client_name.as_deref().or(self.user_agent.as_deref()).unwrap_or("an unknown client");
        format!("{client} from {}", self.ip.as_deref().unwrap_or("an unknown address"))
    }
}

/// An object that was found, or only its id if no request was needed.
pub(crate) struct Resolved<I> {
    pub(crate) id: I,
    /// What a person recognises the object by; the id if it was not looked up.
    pub(crate) label: String,
}

impl<T: Addressed> From<T> for Resolved<T::Id> {
    fn from(object: T) -> Self {
        Self { id: object.id(), label: object.label() }
    }
}

/// Resolves a reference. A complete id is looked up only for a question to a person.
pub(crate) async fn resolve<T: Addressed>(
    reference: &IdRef<T::Id>,
    prompt: Prompt,
    api: &Api,
) -> Result<Resolved<T::Id>> {
    match reference {
        IdRef::Id(id) if !prompt.asks_for_confirmation() => Ok(Resolved { id: *id, label: id.to_string() }),
        _ => find::<T>(reference, api).await.map(Resolved::from),
    }
}

impl<I: Copy + Display> IdRef<I> {
    /// Resolves a reference without a question to a person.
    pub(crate) async fn id<T: Addressed<Id = I>>(&self, api: &Api) -> Result<I> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Part(_) => find::<T>(self, api).await.map(|object| object.id()),
        }
    }
}

/// The id of an object that an e-mail address determines.
pub(crate) trait IdOfEmail: Copy + Display {
    type Object: Addressed<Id = Self>;

    /// Finds the object with an e-mail address.
    async fn find(email: &str, api: &Api) -> Result<Self::Object>;
}

impl IdOfEmail for UserId {
    type Object = User;

    async fn find(email: &str, api: &Api) -> Result<User> {
        let filter = [("email", Some(email))];
        let users: Vec<User> = api.list(User::LIST.path, &filter, ListLimit::OnePage).await?.items;
        let missing = || {
            let message = format!("no user has the e-mail address {email}");
            CliError::from_kind(ProblemKind::NotFound, User::ROUTE.path).with_message(message)
        };
        users.into_iter().next().ok_or_else(missing)
    }
}

impl IdOfEmail for InviteId {
    type Object = Invite;

    /// An address has at most one pending invite.
    async fn find(email: &str, api: &Api) -> Result<Invite> {
        let filter = [("status", Some(InviteStatus::Pending.as_str()))];
        let pending: Vec<Invite> = api.list(Invite::LIST.path, &filter, ListLimit::All).await?.items;
        let missing = || {
            let message = format!("no pending invite has the e-mail address {email}");
            CliError::from_kind(ProblemKind::NotFound, Invite::ROUTE.path).with_message(message)
        };
        let is_same = |invite: &Invite| invite.email.eq_ignore_ascii_case(email.trim());
        pending.into_iter().find(is_same).ok_or_else(missing)
    }
}

impl<I: IdOfEmail> EmailOrId<I> {
    /// Id of the object.
    pub(crate) async fn id(&self, api: &Api) -> Result<I> {
        match self {
            Self::Email(email) => I::find(email, api).await.map(|object| object.id()),
            Self::Id(id) => id.id::<I::Object>(api).await,
        }
    }

    /// Id and e-mail address, for a question to a person.
    pub(crate) async fn resolve(&self, prompt: Prompt, api: &Api) -> Result<Resolved<I>> {
        match self {
            Self::Email(email) => I::find(email, api).await.map(Resolved::from),
            Self::Id(id) => resolve::<I::Object>(id, prompt, api).await,
        }
    }
}

/// Finds the only object that matches.
async fn find<T: Addressed>(reference: &IdRef<T::Id>, api: &Api) -> Result<T> {
    let mut found: Vec<T> = api.list_all(T::LIST.path).await?.items;
    found.retain(|object| reference.matches(&object.id()));
    if found.len() > 1 {
        return Err(ambiguous(reference, &found));
    }
    found.pop().ok_or_else(|| {
        let message = format!("none of the {} has an id that starts or ends with {reference}", T::PLURAL);
        CliError::from_kind(ProblemKind::NotFound, T::ROUTE.path).with_message(message)
    })
}

fn ambiguous<T: Addressed>(reference: &IdRef<T::Id>, found: &[T]) -> CliError {
    let candidates =
        found.iter().take(MAX_CANDIDATES).map(|object| format!("\n  {}  {}", object.id(), object.label()));
    let rest = found.len().saturating_sub(MAX_CANDIDATES);
    let more = if rest > 0 { format!("\n  and {rest} more") } else { String::new() };
    let message = format!("{reference} matches {} {}:", found.len(), T::PLURAL);
    ErrorKind::AmbiguousId.with_message(message + &candidates.collect::<String>() + &more)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn start_and_end_of_an_id_match() {
        let id: UserId = ID.parse().unwrap();
        for (text, matches) in [
            ("0189", true),
            ("01890A5D-AC96", true),
            ("8057", true),
            ("b302099a8057", true),
            ("ac96", false),
            ("0000", false),
        ] {
            let reference: IdRef<UserId> = text.parse().unwrap();
            assert_eq!(reference.matches(&id), matches, "{text}");
        }
        assert_eq!(ID.parse(), Ok(IdRef::Id(id)));
    }

    #[test]
    fn rejects_short_parts_and_other_text() {
        for text in
            ["", "018", "--------", "1-2-3", "bob", "01890a5d-ac96-774b-bcce-b302099a8057x", "svc_st_x"]
        {
            assert!(text.parse::<IdRef<UserId>>().is_err(), "{text}");
        }
        let error = "bob".parse::<UserRef>().unwrap_err();
        assert_eq!(error, "expected an e-mail address, an id, or at least 4 characters of its start or end");
        assert_eq!("bob@x".parse(), Ok(UserRef::Email("bob@x".into())));
    }

    proptest! {
        #[test]
        fn every_part_of_at_least_four_digits_is_accepted(id in any::<u128>(), length in 4_usize..=36) {
            let id = uuid::Uuid::from_u128(id).to_string();
            for part in [&id[..length], &id[36 - length..]] {
                let reference: std::result::Result<IdRef<UserId>, _> = part.parse();
                let digits = part.chars().filter(|c| *c != '-').count();
                prop_assert_eq!(reference.is_ok(), digits >= MIN_PART, "{}", part);
                if let Ok(reference) = reference {
                    prop_assert!(reference.matches(&id.parse().unwrap()));
                }
            }
        }
    }
}
