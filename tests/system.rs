//! The whole system as separate processes, with the real CLI, clients, proxy and servers, and with outages of the servers.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod system {
    mod argon2_settings;
    mod catalog;
    mod clocks;
    mod cluster;
    mod configuration;
    mod connections;
    mod consumer;
    mod consumer_accounts;
    mod consumer_clients;
    mod consumer_examples;
    mod consumer_floods;
    mod device_login;
    mod doctor;
    mod documents;
    mod event_stream;
    mod event_types;
    mod failover;
    mod faults;
    mod full_volume;
    mod invalid_requests;
    mod login_flood;
    mod new_servers;
    mod outages;
    mod pooler;
    mod producers;
    mod published_events;
    mod quotas;
    mod remediations;
    mod restore;
    mod revocation;
    mod rotation;
    mod routes;
    mod send_events;
    mod services;
    mod standalone;
    mod streams;
}
