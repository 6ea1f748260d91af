//! The schema is created once, needs the right to do so, and is refused if it is newer.

use std::thread;

use gossip_contracts::identity::TenantId;
use gossip_coordination::store::{Allotment, fly, set_allotment};
use gossip_coordination::{InfraError, StoreRefusal};
use gossip_coordination_postgres::{BlockingStore, ConnectError, Durability, PostgresConfig};

use crate::real_server::{config_on, server};

#[test]
fn processes_that_start_at_once_create_one_schema() {
    let config = config_on(server());
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| BlockingStore::connect(&config).unwrap());
        }
    });
    let rows = server().sql(&format!("SELECT count(*) FROM {}.incarnation", config.schema));
    assert_eq!(rows, "1");
}

#[test]
fn a_newer_schema_is_refused() {
    let config = config_on(server());
    BlockingStore::connect(&config).unwrap();
    server().sql(&format!("UPDATE {}.meta SET version = 99", config.schema));
    let refused = BlockingStore::connect(&config);
    assert!(matches!(refused, Err(ConnectError::NewerSchema { found: 99, known: 1 })));
}

#[test]
fn owner_of_an_existing_schema_needs_no_right_on_the_database() {
    let config = config_on(server());
    let (schema, user) = (&config.schema, format!("owner_of_{}", config.schema));
    server().sql(&format!("CREATE ROLE {user} LOGIN"));
    server().sql(&format!("CREATE SCHEMA {schema} AUTHORIZATION {user}"));
    let right = format!("SELECT has_database_privilege('{user}', current_database(), 'CREATE')");
    assert_eq!(server().sql(&right), "f");
    let as_role = PostgresConfig { user, ..config.clone() };
    BlockingStore::connect(&as_role).unwrap();
    BlockingStore::connect(&as_role).unwrap();
    assert_eq!(server().sql(&format!("SELECT version FROM {schema}.meta")), "1");
}

#[test]
fn durability_is_declared_and_stats_show_it() {
    let config = config_on(server());
    let mut store = BlockingStore::connect(&config).unwrap();
    let before = store.stats().unwrap();
    assert_eq!((before.rows, &*before.durability, before.schema_version), (0, "local", 1));
    assert_eq!(before.synchronous_commit, "on");
    let allotment = set_allotment(TenantId::from_bytes([7; 32]), Some(Allotment::of_shards(3)));
    fly(&mut store, allotment).unwrap();
    store.declare_durability(Durability::Replicated).unwrap();
    let after = store.stats().unwrap();
    assert_eq!((after.rows, &*after.durability), (1, "replicated"));
    assert_eq!(after.incarnation, before.incarnation);
    assert!(after.incarnation.is_some() && after.bytes >= 8_192, "{after:?}");
}

/// Functions are the only access: a role that may execute them needs no right on a table once the
/// functions run with the rights of their owner.
#[test]
fn a_role_needs_rights_to_create_and_only_functions_to_use_a_store() {
    let config = config_on(server());
    let (schema, user) = (&config.schema, format!("role_of_{}", config.schema));
    server().sql(&format!("CREATE ROLE {user} LOGIN"));
    let as_role = PostgresConfig { user: user.clone(), ..config.clone() };
    let Err(ConnectError::Store(error)) = BlockingStore::connect(&as_role) else {
        panic!("the role may not create a schema");
    };
    let not_permitted = StoreRefusal::NotPermitted;
    assert!(matches!(error, InfraError::Refused { why, .. } if why == not_permitted), "{error}");
    BlockingStore::connect(&config).unwrap();
    for function in ["version", "commit", "read", "enter"] {
        server().sql(&format!("ALTER FUNCTION {schema}.{function} SECURITY DEFINER"));
    }
    server().sql(&format!("GRANT USAGE ON SCHEMA {schema} TO {user}"));
    assert!(BlockingStore::connect(&as_role).is_err(), "functions are not open to every role");
    server().sql(&format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {user}"));
    BlockingStore::connect(&as_role).unwrap();
}
