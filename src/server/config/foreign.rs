//! Keys that people know from Apache Kafka and that do not exist here: what to use instead, or why there is nothing.

/// What to say about a key of Kafka's.
pub(super) fn advice(name: &str) -> Option<&'static str> {
    let exact = match name {
        "broker.id" => "it is called node.id",
        "host.name" | "port" => "use listeners=HOST:PORT",
        "advertised.host.name" | "advertised.port" => "use advertised.listeners=HOST:PORT",
        "process.roles"
        | "controller.quorum.voters"
        | "controller.quorum.bootstrap.servers"
        | "controller.listener.names"
        | "inter.broker.listener.name" => {
            "a broker is a cluster of its own in this version of Kilo, and needs no such setting"
        }
        "delete.topic.enable" => "deleting topics is not built in this version of Kilo",
        "compression.type" => "batches are stored as they are sent: set compression.type in the producer",
        _ => "",
    };
    if !exact.is_empty() {
        return Some(exact);
    }
    let groups: [(&[&str], &str); 5] = [
        (
            &["log.retention.", "log.cleaner.", "log.segment.delete."],
            "retention and compaction are not built in this version of Kilo: nothing is deleted",
        ),
        (&["zookeeper."], "there is no ZooKeeper: leave it out"),
        (&["offsets.", "group."], "consumer groups are not built in this version of Kilo"),
        (&["transaction.", "transactional."], "transactions are not built in this version of Kilo"),
        (
            &["ssl.", "sasl.", "security.", "listener.security.", "authorizer."],
            "encryption and access control are not built in this version of Kilo: listen where only trusted clients reach it",
        ),
    ];
    groups
        .into_iter()
        .find(|(prefixes, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(_, text)| text)
}
