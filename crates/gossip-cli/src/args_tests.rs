//! What can be typed is consistent, and each flag has its variable, unless it must be typed.

use std::collections::BTreeMap;

use clap::{Command, CommandFactory as _, Parser as _};

use super::Cli;

/// Flags whose variable is not the flag's own name: two commands mean different things by it.
const NAMED_OTHERWISE: [(&str, &str, &str); 2] =
    [("run verify", "source", "GOSSIP_COMPARE"), ("handoff start", "to", "GOSSIP_TO_WORKER")];

/// Flags that are typed or not given: a variable that was left in a shell or a unit file would take
/// the guard off every deletion.
const TYPED_ONLY: [(&str, &str); 1] = [("run rm", "damaged")];

/// Every flag of every command: path of the command, name, variable.
fn flags(path: &str, command: &Command, found: &mut Vec<(String, String, Option<String>)>) {
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long().filter(|name| !matches!(*name, "help" | "version")) else {
            continue;
        };
        let variable = arg.get_env().map(|name| name.to_string_lossy().into_owned());
        found.push((path.to_owned(), long.to_owned(), variable));
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        flags(format!("{path} {}", below.get_name()).trim(), below, found);
    }
}

#[test]
fn each_flag_has_a_variable_of_its_name() {
    Cli::command().debug_assert();
    let mut found = Vec::new();
    flags("", &Cli::command(), &mut found);
    assert!(found.len() > 30, "{} flags", found.len());
    let mut meanings: BTreeMap<String, String> = BTreeMap::new();
    for (path, long, variable) in found {
        if TYPED_ONLY.contains(&(path.as_str(), long.as_str())) {
            assert_eq!(variable, None, "gossip {path} --{long}");
            continue;
        }
        let exception = NAMED_OTHERWISE.iter().find(|(at, flag, _)| *at == path && *flag == long);
        let usual = format!("GOSSIP_{}", long.to_uppercase().replace('-', "_"));
        let expected = exception.map_or(usual, |(_, _, variable)| (*variable).to_owned());
        assert_eq!(variable.as_deref(), Some(expected.as_str()), "gossip {path} --{long}");
        let named = meanings.entry(expected).or_insert_with(|| long.clone());
        assert_eq!(*named, long, "one variable, one flag");
    }
}

/// Handlers find these in their environment; a gossip that they call must not take them for flags.
#[test]
fn the_variables_of_handlers_are_no_flags() {
    let mut found = Vec::new();
    flags("", &Cli::command(), &mut found);
    for taken in ["GOSSIP_RUN", "GOSSIP_SHARD", "GOSSIP_FENCE"] {
        assert!(found.iter().all(|(_, _, variable)| variable.as_deref() != Some(taken)));
    }
}

/// So that the command line shows the runs of programs that name no tenant.
#[test]
fn the_usual_tenant_is_that_of_the_library() {
    let typed = Cli::try_parse_from(["gossip", "run", "list"]).unwrap();
    let tenant = crate::store::tenant(&typed.global).unwrap();
    assert_eq!(Ok(tenant), gossip::tenant_id(gossip::DEFAULT_TENANT));
}
