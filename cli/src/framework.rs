//! What all commands share: their trait and their catalog, settings and credentials, requests, input and output. Nothing here
//! uses a command.

pub(crate) mod address;
pub(crate) mod api;
pub(crate) mod arguments;
pub(crate) mod ca_file;
pub(crate) mod catalog;
pub(crate) mod command;
pub(crate) mod configuration;
pub(crate) mod context;
pub(crate) mod credential;
pub(crate) mod credentials;
pub(crate) mod endpoint;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod help;
pub(crate) mod input;
pub(crate) mod input_file;
pub(crate) mod keyring;
pub(crate) mod output;
pub(crate) mod prompt;
pub(crate) mod settings;
pub(crate) mod signals;
pub(crate) mod since;
pub(crate) mod terminal;
pub(crate) mod token;
