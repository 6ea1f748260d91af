//! The schema is created once, needs the right to do so, and is refused if it is newer.

use std::thread;

use gossip_coordination::{InfraError, StoreRefusal};
use gossip_coordination_postgres::{BlockingStore, ConnectError, PostgresConfig};

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
