//! `svc auth factors`: second factors of the own account.

use clap::Args;
use contract::factors::{
    ConfirmTotp, Factor, FactorType, Factors as OwnFactors, NewTotp, RecoveryCodes, RenamePasskey,
};
use contract::{ProblemKind, Secret, routes};
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::FactorId;

use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::{Command, ended, group};
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{
    Cell, CommandOutput, Row, Table, escape, escape_lines, optional, text, time, word,
};
use crate::framework::terminal::print_line;

/// What to do if prompting is not possible.
const TERMINAL: &str = "no --no-input, and run the command in a terminal";
const AFTER_LOST_RESPONSE: &str = "Run `svc auth factors list`, then run the command again.";

group!(
    /// Manage the second factors of your account.
    Factors {
        List(List),
        /// Set up a second factor.
        #[command(subcommand)]
        Add(Add),
        Rename(Rename),
        Remove(Remove),
        RecoveryCodes(NewRecoveryCodes),
    }
);

group!(
    /// Set up a second factor.
    Add {
        Totp(AddTotp),
    }
);

fn type_of(factor: &Factor) -> Cell {
    text(match factor.kind {
        FactorType::Totp => "authenticator app",
        FactorType::Passkey => "passkey",
    })
}

impl Row for Factor {
    const EMPTY: &'static str = "No second factors. To set one up: svc auth factors add totp";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("ID", word(self.factor_id)),
            ("TYPE", type_of(self)),
            ("NAME", optional(self.name.as_deref().map(text))),
            ("CREATED", time(&self.created_at)),
            ("LAST USED", optional(self.last_used_at.as_ref().map(time))),
        ]
    }
}

/// The second factors of your account.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ListedFactors {
    /// The factors.
    items: Vec<Factor>,
    /// Number of unused recovery codes.
    recovery_codes: i64,
}

impl CommandOutput for ListedFactors {
    fn table(&self) -> Table {
        Table::items(&self.items)
    }
}

impl CommandOutput for RecoveryCodes {
    fn table(&self) -> Table {
        let codes: Vec<_> = self.recovery_codes.iter().map(Secret::expose).collect();
        Table::text(&codes.join("\n"))
    }
}

/// List your second factors.
#[derive(Args)]
pub(crate) struct List {}

impl Command for List {
    type Output = ListedFactors;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_FACTORS]);
    const EXAMPLES: Examples = &[("List your second factors", "svc auth factors list")];
    const AGENT_NOTES: &'static str = "The number of unused recovery codes is in the JSON output only.";
    const SEE_ALSO: Names = &[
        "auth factors add totp",
        "auth factors rename",
        "auth factors remove",
        "auth factors recovery-codes",
    ];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let OwnFactors { factors, recovery_codes } = api.call(&routes::LIST_FACTORS, &[]).fetch().await?;
        Ok(ListedFactors { items: factors, recovery_codes })
    }
}

/// Shows the secret of a new authenticator app on the terminal.
pub(super) fn show_secret(app: &NewTotp) {
    let uri = app.uri.expose();
    if let Ok(code) = QrCode::with_error_correction_level(uri, EcLevel::L) {
        // Most terminals are dark: light modules are the characters.
        let mut rendered = code.render::<Dense1x2>();
        print_line(&rendered.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build());
        print_line("Scan this QR code with the app.");
    }
    print_line(&format!("Or type this secret into the app: {}", escape(app.secret.expose())));
    print_line(&format!("Or open this address on the phone: {}", escape(uri)));
}

/// Set up an authenticator app.
///
/// Shows a QR code and the secret for the app and prompts for the first code. Then each login needs a second factor. Prints ten
/// recovery codes, unless you have unused ones: store them where you can find them without your phone. Requires a password login in the
/// last ten minutes.
#[derive(Args)]
pub(crate) struct AddTotp {}

impl Command for AddTotp {
    type Output = RecoveryCodes;

    const ROUTES: Routes = Routes::Only(&[&routes::SET_UP_TOTP, &routes::CONFIRM_TOTP]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[("Set up an authenticator app", "svc auth factors add totp")];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(AFTER_LOST_RESPONSE);
    const AGENT_NOTES: &'static str = "Requires a terminal and a person with a phone. The output contains credentials that are \
        shown only once: never store them in a log.";
    const SEE_ALSO: Names = &["auth factors list", "auth factors recovery-codes", "auth login"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        prompt.require_available("code of the app", TERMINAL)?;
        let app: NewTotp = api.call(&routes::SET_UP_TOTP, &[]).fetch().await?;
        show_secret(&app);
        loop {
            let code = prompt.secret("Code of the app", "code of the app", TERMINAL).await?;
            let call = api.call(&routes::CONFIRM_TOTP, &[]).json(&ConfirmTotp { code })?;
            match call.fetch::<RecoveryCodes>().await {
                Err(error) if error.code == "validation_failed" => print_line(&escape_lines(&error.message)),
                Err(error) => return Err(error),
                Ok(codes) => {
                    context.out().notice(if codes.recovery_codes.is_empty() {
                        "The app is added. Your recovery codes stay valid."
                    } else {
                        "Store the recovery codes now: they are not shown again."
                    });
                    return Ok(codes);
                }
            }
        }
    }
}

impl CommandOutput for Factor {
    fn table(&self) -> Table {
        Table::fields([
            ("factor", Some(text(self.factor_id))),
            ("type", Some(type_of(self))),
            ("name", self.name.as_deref().map(text)),
            ("created", Some(time(&self.created_at))),
            ("last used", self.last_used_at.as_ref().map(time)),
        ])
    }
}

/// Rename a passkey.
///
/// An authenticator app has no name. Requires a login with a second factor in the last ten minutes.
#[derive(Args)]
pub(crate) struct Rename {
    /// Id of the passkey.
    factor_id: FactorId,
    /// New name, at most 64 characters.
    name: String,
}

impl Command for Rename {
    type Output = Factor;

    const ROUTES: Routes = Routes::Only(&[&routes::RENAME_PASSKEY]);
    const EXAMPLES: Examples =
        &[("Rename a passkey", "svc auth factors rename 01890a5d-ac96-774b-bcce-b302099a8057 laptop")];
    const AGENT_NOTES: &'static str = "The name is only for people: logins do not use it.";
    const SEE_ALSO: Names = &["auth factors list", "auth factors remove"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let call = api.call(&routes::RENAME_PASSKEY, &[&self.factor_id]);
        call.json(&RenamePasskey { name: self.name })?.fetch().await.map_err(|error: CliError| {
            if error.code == ProblemKind::NotFound.code() {
                return CliError { message: format!("you have no passkey {}", self.factor_id), ..error }
                    .with_remediation(
                        "List your passkeys: `svc auth factors list`. Authenticator apps have no name.",
                    );
            }
            error
        })
    }
}

/// Remove a second factor.
///
/// Removing the last factor also removes the recovery codes. Requires a login with the second factor in the last ten minutes. Asks for
/// confirmation.
#[derive(Args)]
pub(crate) struct Remove {
    /// Id of the factor.
    factor_id: FactorId,
}

ended!(
    /// Result of removing a factor.
    RemovedFactor {
        /// Id of the factor.
        factor_id: FactorId,
        removed
    }: "Removed. Without another factor, the password alone is enough to log in."
);

impl Command for Remove {
    type Output = RemovedFactor;

    const ROUTES: Routes = Routes::Only(&[&routes::REMOVE_FACTOR]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples =
        &[("Remove a factor", "svc auth factors remove 01890a5d-ac96-774b-bcce-b302099a8057")];
    const AGENT_NOTES: &'static str = "Makes the account less secure: pass --yes only if the user asked for this change. Requires \
        --yes without a terminal.";
    const SEE_ALSO: Names = &["auth factors list", "users reset-factors"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        context.prompt().confirm(&format!("Remove the second factor {}?", self.factor_id)).await?;
        api.call(&routes::REMOVE_FACTOR, &[&self.factor_id]).execute().await?;
        Ok(RemovedFactor::new(self.factor_id))
    }
}

/// Replace your recovery codes.
///
/// Prints ten new codes; the earlier ones are invalid. Requires a login with the second factor in the last ten minutes. Asks for
/// confirmation.
#[derive(Args)]
pub(crate) struct NewRecoveryCodes {}

impl Command for NewRecoveryCodes {
    type Output = RecoveryCodes;

    const ROUTES: Routes = Routes::Only(&[&routes::REPLACE_RECOVERY_CODES]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples =
        &[("Replace your recovery codes after confirmation", "svc auth factors recovery-codes")];
    const AFTER_LOST_RESPONSE: Option<&'static str> =
        Some("Run the command again: only the codes of the last run are valid.");
    const AGENT_NOTES: &'static str = "Requires --yes without a terminal. The output contains credentials that are shown only once: \
        never store them in a log.";
    const SEE_ALSO: Names = &["auth factors list", "auth login"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        context.prompt().confirm("Replace the recovery codes? The earlier ones become invalid.").await?;
        let codes = api.call(&routes::REPLACE_RECOVERY_CODES, &[]).fetch().await?;
        context.out().notice("Store the recovery codes now: they are not shown again.");
        Ok(codes)
    }
}
