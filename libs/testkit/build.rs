//! Rebuilds the crate when a service gets a migration: `sqlx::migrate!` does not notice new files.

fn main() {
    println!("cargo:rerun-if-changed=../../services/identity/migrations");
    println!("cargo:rerun-if-changed=../../services/session/migrations");
}
