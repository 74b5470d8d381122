//! Objects as people name them: users and invites by e-mail address or id, other objects by id.

use std::fmt::{self, Display};
use std::str::FromStr;

use contract::ProblemKind;
use contract::identity::{Invite, InviteStatus, User};
use contract::routes::{self, Route};
use contract::session::ApiKey;
use serde::de::DeserializeOwned;
use tenancy::{InviteId, KeyId, UserId};

use crate::framework::api::Api;
use crate::framework::error::{CliError, Result};
use crate::framework::prompt::Prompt;

/// An object by e-mail address or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EmailOrId<I> {
    Email(String),
    Id(I),
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
        text.parse().map(Self::Id).map_err(|_| "expected an e-mail address or a complete id".to_owned())
    }
}

/// An object with an id.
pub(crate) trait Addressed: DeserializeOwned {
    type Id: Copy + Display + PartialEq;

    /// Lists the objects.
    const LIST: &'static Route;
    /// Path of an object, for the text of the error if it does not exist.
    const ROUTE: &'static Route;

    fn id(&self) -> Self::Id;

    /// What a person recognises the object by.
    fn label(&self) -> String;
}

impl Addressed for User {
    type Id = UserId;

    const LIST: &'static Route = &routes::LIST_USERS;
    const ROUTE: &'static Route = &routes::GET_USER;

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

    fn id(&self) -> InviteId {
        self.invite_id
    }

    fn label(&self) -> String {
        self.email.clone()
    }
}

impl Addressed for ApiKey {
    type Id = KeyId;

    const LIST: &'static Route = &routes::LIST_API_KEYS;
    const ROUTE: &'static Route = &routes::REVOKE_API_KEY;

    fn id(&self) -> KeyId {
        self.id
    }

    fn label(&self) -> String {
        self.name.clone()
    }
}

/// An object, and what a person recognises it by if it was looked up.
pub(crate) struct Resolved<I> {
    pub(crate) id: I,
    pub(crate) label: Option<String>,
}

impl<T: Addressed> From<T> for Resolved<T::Id> {
    fn from(object: T) -> Self {
        Self { id: object.id(), label: Some(object.label()) }
    }
}

/// For a question to a person.
impl<I: Display> Display for Resolved<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => label.fmt(f),
            None => self.id.fmt(f),
        }
    }
}

/// Resolves an id. The object is looked up only for a question to a person.
pub(crate) async fn resolve<T: Addressed>(id: T::Id, prompt: Prompt, api: &Api) -> Result<Resolved<T::Id>> {
    if !prompt.asks_for_confirmation() {
        return Ok(Resolved { id, label: None });
    }
    let found: Vec<T> = api.list_all(T::LIST.path).await?;
    let object = found.into_iter().find(|object| object.id() == id);
    object.map(Resolved::from).ok_or_else(|| CliError::from_kind(ProblemKind::NotFound, T::ROUTE.path))
}

/// The id of an object that an e-mail address determines.
pub(crate) trait IdOfEmail: Copy + Display + PartialEq {
    type Object: Addressed<Id = Self>;

    /// Finds the object with an e-mail address.
    async fn find(email: &str, api: &Api) -> Result<Self::Object>;
}

impl IdOfEmail for UserId {
    type Object = User;

    async fn find(email: &str, api: &Api) -> Result<User> {
        let filter = [("email", Some(email))];
        let users: Vec<User> = api.list(User::LIST.path, &filter, Some(1)).await?;
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
        let pending: Vec<Invite> = api.list(Invite::LIST.path, &filter, None).await?;
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
            Self::Id(id) => Ok(*id),
        }
    }

    /// Id and e-mail address, for a question to a person.
    pub(crate) async fn resolve(&self, prompt: Prompt, api: &Api) -> Result<Resolved<I>> {
        match self {
            Self::Email(email) => I::find(email, api).await.map(Resolved::from),
            Self::Id(id) => resolve::<I::Object>(*id, prompt, api).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn only_an_e_mail_address_or_a_complete_id_names_an_object() {
        assert_eq!(ID.parse(), Ok(UserRef::Id(ID.parse().unwrap())));
        assert_eq!("bob@x".parse(), Ok(UserRef::Email("bob@x".into())));
        for text in ["", "bob", "8057", "01890a5d-ac96", &ID[..35], &format!("{ID}x"), "svc_st_x"] {
            let error = text.parse::<UserRef>().unwrap_err();
            assert_eq!(error, "expected an e-mail address or a complete id", "{text}");
        }
    }
}
