//! What to do after a delivery that failed, or that has rejects.

use super::{Send, SendSummary, failure_of};
use crate::commands::events::delivery::SendOutcome;
use crate::commands::events::item::described;
use crate::commands::events::rejects::RejectedLine;
use crate::framework::error::ErrorKind;

impl Send {
    /// What to do so that no event is lost or stored twice.
    pub(super) fn remediation(&self, result: &SendOutcome, summary: &SendSummary) -> String {
        let failure = failure_of(result);
        // Repeating cannot repair the input.
        let can_continue = failure.is_some()
            && result.local_error.as_ref().is_none_or(|error| error.code == ErrorKind::OutputFailed.code());
        let mut steps = Vec::from_iter(failure.map(|error| match self.checkpoint {
            Some(_) => error.remediation,
            None => without_repetition(&error.remediation),
        }));
        let has_no_source = |reject: &RejectedLine| reject.message.contains("must have a source_id");
        if self.input.source_id.is_none() && summary.first_rejects.iter().any(has_no_source) {
            steps.push("Give events without a source one with `--source-id`.".to_owned());
        }
        let lost = result.first_lost.filter(|_| self.checkpoint.is_none());
        // Failed events can be stored, and only the same input has the same ids.
        let is_to_repeat = lost.is_some() && result.is_repeatable && result.request_error.is_some();
        if let Some(path) = summary.rejects_file.as_ref().filter(|_| !is_to_repeat) {
            let correct = if result.counts.needs_correction { "correct the events and " } else { "" };
            steps.push(format!(
                "Do not send the input again: {correct}send only the rejects with `svc events send --file {path}`."
            ));
        }
        if result.counts.truncated {
            let rest = if result.is_repeatable {
                "Write these events from the original input to a new file, correct them, and send this file."
            } else {
                "The rest cannot be read again and is lost."
            };
            steps.push(format!("Of rejects with `truncated`, only the start is kept. {rest}"));
        }
        let stopped_before = summary.stopped_before();
        if let Some((line, item)) = lost {
            let first = described(line, item);
            let end = stopped_before
                .as_ref()
                .map_or_else(|| "the end".to_owned(), |place| format!("before {place}"));
            steps.push(if is_to_repeat {
                format!(
                    "Not all rejects and failed events from {first} on are kept: make space, and run the same command again at once. \
                    Within two minutes, no event is stored twice."
                )
            } else if result.is_repeatable {
                format!(
                    "Not all rejects from {first} to {end} are kept: write this part of the input to a new file, find the invalid events \
                    with `svc events validate`, which lists 100 at a time, and send only them, corrected."
                )
            } else {
                format!("Not all events from {first} on are kept: they cannot be read again and are lost.")
            });
        }
        match stopped_before {
            _ if is_to_repeat => {}
            _ if self.checkpoint.is_some() && can_continue => {
                steps.push(
                    "Run the same command again: it continues with the events that are not settled."
                        .to_owned(),
                );
            }
            Some(place) if lost.is_none() || result.is_repeatable => {
                steps.push(format!("If the input has more, send it from {place} on: it was not sent."));
            }
            _ => {}
        }
        steps.join(" ")
    }
}

/// The remediation of a failed request without a second run of the command, which would send the whole input again.
fn without_repetition(remediation: &str) -> String {
    let repetitions = [", then run the command again", ", or try again"];
    let text =
        repetitions.iter().fold(remediation.to_owned(), |text, repetition| text.replace(repetition, ""));
    text.replace("Try again later", "Wait")
}

#[cfg(test)]
mod tests {
    use contract::ProblemKind;

    use super::*;
    use crate::framework::error::remediation_for;

    #[test]
    fn no_remediation_of_a_failed_request_repeats_the_command_if_there_is_a_rejects_file() {
        let problems = ProblemKind::ALL.iter().map(|kind| remediation_for(*kind));
        for text in problems.chain(ErrorKind::ALL.iter().map(|kind| kind.remediation())) {
            // Signals and confirmations end no request.
            let is_other =
                text.starts_with("Run the command again") || text.starts_with("Check whether the command");
            let first = without_repetition(text).to_lowercase();
            assert!(
                is_other || !first.contains("the command again") && !first.contains("try again"),
                "{text}"
            );
        }
        assert_eq!(without_repetition(remediation_for(ProblemKind::Overloaded)), "Wait.");
    }
}
