//! Documents: the programs accept every command of `svc` and of the services in the README and in `docs`, and the table of the end-to-end
//! test is complete.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{output_of, program_path, required_variable};

const PROGRAMS: [&str; 4] = ["svc", "svc-identity", "svc-session", "svc-ingest"];

/// The README and the pages below `docs`, sorted.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md")];
    let mut directories = vec![root.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Inline code, and the lines of code blocks without the parts after a pipe or a semicolon.
fn code(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, block) in page.split("```").enumerate() {
        let (separator, skip) = if index % 2 == 1 { ("\n", 1) } else { ("`", 2) };
        let joined = block.replace("\\\n", " ");
        let parts = joined.split(separator).skip(1).step_by(skip).map(str::to_owned);
        found.extend(parts.flat_map(|part| part.split(['|', ';']).map(str::to_owned).collect::<Vec<_>>()));
    }
    found
}

/// Replaces `<name>`, `[name]` and `…`. Returns whether there was one.
fn without_placeholders(command: &str) -> (String, bool) {
    let mut text = String::new();
    let (mut depth, mut replaced) = (0_u32, false);
    for character in command.chars() {
        match character {
            '<' | '[' => {
                depth += 1;
                text.push_str(if depth == 1 { "placeholder" } else { "" });
                replaced = true;
            }
            '>' | ']' => depth = depth.saturating_sub(1),
            '…' => {
                text.push_str("placeholder");
                replaced = true;
            }
            _ if depth == 0 => text.push(character),
            _ => {}
        }
    }
    (text, replaced)
}

/// The command with `--help` in place of redirections and comments, or none if it does not run one of the programs.
fn help_command(code: &str) -> Option<(String, bool)> {
    let end = [" > ", " >> ", " < ", " # ", " &"]
        .iter()
        .filter_map(|mark| code.find(mark))
        .min()
        .unwrap_or(code.len());
    let words = code[..end].split_whitespace().skip_while(|word| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    });
    let command = words.collect::<Vec<_>>().join(" ");
    let command = command.strip_prefix("target/debug/").unwrap_or(&command);
    let (program, rest) = command.split_once(' ')?;
    // A lower-case word: others are prose, or the sender of a mail.
    let runs = PROGRAMS.contains(&program) && rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '-');
    let (command, replaced) = without_placeholders(command);
    runs.then(|| (format!("{command} --help"), replaced))
}

/// `--help` is evaluated after the arguments before it. Values of placeholders may be invalid, names of commands and options may not.
#[tokio::test(flavor = "multi_thread")]
async fn programs_accept_every_command_of_the_documents() {
    let directory = program_path("svc").parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(directory).chain(std::env::split_paths(&required_variable("PATH"))),
    );
    let path = path.unwrap();
    let (mut checked, mut rejected) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (command, has_placeholder) in code(&text).iter().filter_map(|code| help_command(code.trim())) {
            let mut shell = Command::new("sh");
            shell.args(["-c", &command]).env("PATH", &path).stdin(std::process::Stdio::null());
            let output = output_of(shell).await;
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let accepted = output.status.success() || has_placeholder && error.contains("invalid value");
            if !accepted {
                rejected.push(format!("{}: {command}: {error}", page.file_name().unwrap().display()));
            }
            checked += 1;
        }
    }
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
    assert!(checked > 60, "only {checked} commands were found");
}

#[test]
fn the_table_of_the_end_to_end_test_has_every_step() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let help = Command::new("python3").arg(root.join("tests/cluster/e2e.py")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, steps) = help.split_once("Steps: ").unwrap();
    let page = std::fs::read_to_string(root.join("docs/kubernetes.md")).unwrap();
    let (_, table) = page.split_once("| Step | What happens |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let documented: Vec<_> =
        rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0)).collect();
    assert_eq!(documented, steps.trim().split(", ").collect::<Vec<_>>());
}
