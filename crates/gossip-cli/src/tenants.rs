//! `tenant limit`: shows and sets the operator's allotment of a tenant.

use gossip::coordination::store::{Allotment, fly, load_tenant_usage, set_allotment};
use gossip::tenant_id;

use crate::args::{Global, ShardLimit, TenantCommand};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::store;

pub(crate) fn run(
    global: &Global,
    command: TenantCommand,
    console: &Console,
) -> Result<Code, Failure> {
    match command {
        TenantCommand::Limit { name, shards } => {
            limit(global, name.as_deref().unwrap_or(&global.tenant), shards, console)
        }
    }
}

fn limit(
    global: &Global,
    name: &str,
    shards: Option<ShardLimit>,
    console: &Console,
) -> Result<Code, Failure> {
    let tenant = tenant_id(name).map_err(|error| Failure::new(Code::Usage, error.to_string()))?;
    let mut store = store::open_existing(global)?.store();
    let failed = |error| Failure::store(&error);
    if let Some(shards) = shards {
        let allotment = match shards {
            ShardLimit::AtMost(max) => Some(Allotment::of_shards(max)),
            ShardLimit::Default => None,
        };
        fly(&mut store, set_allotment(tenant, allotment)).map_err(failed)?;
    }
    // Read after the change, so that the command shows what applies now.
    let usage = fly(&mut store, load_tenant_usage(tenant)).map_err(failed)?;
    let max = usage.allotment.max_shards;
    if usage.shards > max {
        console.note(&format!(
            "the tenant keeps its {}; no more can be created before runs are deleted",
            output::count(usage.shards, "shard")
        ));
    }
    let record = Record::new()
        .with("tenant", name)
        .with("shards", usage.shards)
        .with("max_shards", max)
        .with("is_default", usage.is_default);
    output::one(global.output, &record)?;
    Ok(Code::Complete)
}
