//! Prints the JSON Schema: `cargo run -p udm --example schema > libs/udm/event.schema.json`.

fn main() {
    print!("{}", udm::pretty_schema());
}
