//! Prints the JSON Schema of an event. `make gen` writes it to `libs/udm/event.schema.json`.

fn main() {
    print!("{}", udm::pretty_schema());
}
