//! The chart and the Tiltfile, tested without a cluster: what renders, what is refused, what is secure. The tests are
//! Python, since Helm's output is YAML and the Tiltfile Starlark; this runs them with the Python that fetched their tools.

use std::path::Path;
use std::process::Command;

#[test]
fn the_chart_and_the_tiltfile_pass_their_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tools = std::fs::read_to_string(root.join(".dev/tools.json")).expect("run `make test`");
    let tools: serde_json::Value = serde_json::from_str(&tools).unwrap();
    let python = tools["python"].as_str().unwrap();
    let run = Command::new(python).arg(root.join("tests/chart/run.py")).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.lines().last().is_some_and(|line| line.contains(" passed, 0 failed")), "{said}");
}
