//! Runs the Python tests of the chart, the images, the Tiltfile, and the checks of wording and structure with the Python that
//! fetched their tools. They are in Python because the output of Helm is YAML and the Tiltfile is Starlark.

use std::path::Path;
use std::process::Command;

#[test]
fn chart_and_tiltfile_pass_their_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tools = std::fs::read_to_string(root.join(".dev/tools.json")).expect("run `make test`");
    let tools: serde_json::Value = serde_json::from_str(&tools).unwrap();
    let python = tools["python"].as_str().unwrap();
    let run = Command::new(python).arg(root.join("tests/chart/run.py")).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(output.lines().last().is_some_and(|line| line.contains(" passed, 0 failed")), "{output}");
}
