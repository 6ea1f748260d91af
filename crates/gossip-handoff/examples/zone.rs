//! A game zone moves from one host to another, with a crash in the middle.
//!
//! ```text
//! cargo run -p gossip-handoff --example zone
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use gossip_contracts::identity::LogicalTime;
use gossip_handoff::{Machine, MemoryRepository, Phase, RecordId, Repository};

/// The state of a zone on one host.
#[derive(Debug, PartialEq, Eq)]
struct Zone {
    players: Vec<String>,
}

impl Zone {
    fn snapshot(&self) -> Vec<u8> {
        self.players.join("\n").into_bytes()
    }

    fn restore(snapshot: &[u8]) -> Result<Self, Box<dyn Error>> {
        let text = str::from_utf8(snapshot)?;
        Ok(Self { players: text.lines().map(str::to_owned).collect() })
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut records = MemoryRepository::new();
    let mut source = Some(Zone { players: vec!["ada".to_owned(), "grace".to_owned()] });

    // The source freezes the zone and stores every phase before it acts on it.
    let id = RecordId::new("zone-7/1")?;
    let now = LogicalTime::from_raw(1_000);
    let mut machine = Machine::new(id.clone(), "zone-7", "host-a", "host-b", now)?;
    let mut version = records.save(&machine.record(), None)?;
    let zone = source.as_ref().ok_or("the source has the zone")?;
    machine.serialize(zone.snapshot())?;
    version = records.save(&machine.record(), Some(version))?;
    machine.transfer()?;
    records.save(&machine.record(), Some(version))?;
    println!("host-a froze the zone and stored it: {}", machine.state());
    // The source crashes; its record is stored.
    drop(machine);

    // The destination starts, finds the move and goes live.
    let found = records.in_progress("host-b")?.pop().ok_or("the move is found")?;
    let destination = Zone::restore(&found.record.snapshot)?;
    let mut machine = Machine::from_record(found.record)?;
    machine.ack()?;
    records.save(&machine.record(), Some(found.version))?;
    println!("host-b is live with {} players: {}", destination.players.len(), machine.state());
    assert_eq!(Some(&destination), source.as_ref());

    // The source restarts. The destination has acknowledged, so the move can only complete.
    let found = records.in_progress("host-a")?.pop().ok_or("the move is not over")?;
    let mut machine = Machine::from_record(found.record)?;
    machine.unlock()?;
    version = records.save(&machine.record(), Some(found.version))?;
    source = None;
    machine.complete()?;
    records.save(&machine.record(), Some(version))?;
    println!("host-a forgot its copy: {}", machine.state());

    assert!(source.is_none() && records.in_progress("host-a")?.is_empty());
    assert_eq!(records.get(&id)?.record.state, Phase::Complete);
    Ok(())
}
