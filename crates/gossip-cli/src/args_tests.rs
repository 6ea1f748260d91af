//! Consistency of the arguments and their environment variables.

use std::collections::BTreeMap;

use clap::{Command, CommandFactory as _, Parser as _};

use super::Cli;

/// Flags whose variable has another name, because the flag has two meanings in two commands.
const OTHER_VARIABLES: [(&str, &str, &str); 2] =
    [("run verify", "source", "GOSSIP_COMPARE"), ("handoff start", "to", "GOSSIP_TO_WORKER")];

/// Flags without a variable: one left set in a shell or a unit file would disable the check for
/// every deletion, change a limit that is only shown, or print secrets. That of the demo is
/// internal.
///
/// `GOSSIP_SHARD` is set for handlers.
const WITHOUT_VARIABLE: [(&str, &str); 9] = [
    ("run rm", "damaged"),
    ("tenant limit", "shards"),
    ("retry", "all"),
    ("retry", "status"),
    ("scan", "show-secrets"),
    ("findings", "show-secrets"),
    ("demo", "worker"),
    ("why", "shard"),
    ("man", "to"),
];

/// Collects every flag of every command: path of the command, name, variable.
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
        if WITHOUT_VARIABLE.contains(&(path.as_str(), long.as_str())) {
            assert_eq!(variable, None, "gossip {path} --{long}");
            continue;
        }
        let exception = OTHER_VARIABLES.iter().find(|(at, flag, _)| *at == path && *flag == long);
        let usual = format!("GOSSIP_{}", long.to_uppercase().replace('-', "_"));
        let expected = exception.map_or(usual, |(_, _, variable)| (*variable).to_owned());
        assert_eq!(variable.as_deref(), Some(expected.as_str()), "gossip {path} --{long}");
        let named = meanings.entry(expected).or_insert_with(|| long.clone());
        assert_eq!(*named, long, "one variable, one flag");
    }
}

/// Handlers get these variables; a `gossip` that a handler starts must not read them as flags.
#[test]
fn no_flag_uses_a_variable_of_handlers() {
    let mut found = Vec::new();
    flags("", &Cli::command(), &mut found);
    for taken in ["GOSSIP_RUN", "GOSSIP_SHARD", "GOSSIP_FENCE"] {
        assert!(found.iter().all(|(_, _, variable)| variable.as_deref() != Some(taken)));
    }
}

/// The command line shows the runs of programs that set no tenant.
#[test]
fn default_tenant_is_that_of_the_library() {
    let cli = Cli::try_parse_from(["gossip", "run", "list"]).unwrap();
    let tenant = crate::store::tenant(&cli.global).unwrap();
    assert_eq!(Ok(tenant), gossip::tenant_id(gossip::DEFAULT_TENANT));
}
