//! The examples do what they say.

#[path = "../examples/zone.rs"]
mod zone;

#[test]
fn a_zone_moves_although_its_source_crashes() {
    zone::main().unwrap();
}
