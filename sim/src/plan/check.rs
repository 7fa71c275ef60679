//! Whether a plan that somebody wrote can be carried out.

use serde_json::Value;

use super::Plan;

/// Milliseconds that a fault phase, or anything in it, may take at most: a run has an hour of simulated time.
pub const DURATION_MS_MAX: u64 = 30 * 60 * 1000;

impl Plan {
    /// What is wrong with a plan for a run with so many clients, in words.
    pub fn check(&self, clients: u32) -> Result<(), String> {
        let plan = serde_json::to_value(self).map_err(|error| error.to_string())?;
        check(&plan, "plan", clients)
    }
}

/// By the names of the keys, which say what a number is.
fn check(value: &Value, key: &str, clients: u32) -> Result<(), String> {
    match value {
        Value::Object(map) => map.iter().try_for_each(|(key, value)| check(value, key, clients)),
        Value::Array(list) => list.iter().try_for_each(|value| check(value, key, clients)),
        Value::Number(number) => {
            let is_client = matches!(key, "client" | "clients" | "without_clients");
            let is_time = !key.ends_with("by_ms") && (key.ends_with("_ms") || key.ends_with("_us"));
            let max = if key.ends_with("_us") { DURATION_MS_MAX * 1000 } else { DURATION_MS_MAX };
            match number.as_u64() {
                Some(number) if is_client && number >= clients.into() => {
                    Err(format!("there is no client {number}: the run has {clients}, numbered from 0"))
                }
                Some(number) if is_time && number > max => Err(format!("`{key} = {number}`: at most {max}")),
                None if is_chance(key) && !number.as_f64().is_some_and(|it| (0.0..=1.0).contains(&it)) => {
                    Err(format!("`{key} = {number}`: a chance is a number from 0 to 1"))
                }
                _ => Ok(()),
            }
        }
        // What JSON has no number for.
        Value::Null if is_chance(key) => Err(format!("`{key}`: a chance is a number from 0 to 1")),
        _ => Ok(()),
    }
}

fn is_chance(key: &str) -> bool {
    let rates = ["rate", "loss", "reset", "slow", "stuck", "sync_lie", "read_flip"];
    rates.contains(&key) || key.ends_with("_error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        let wrong = |action: &str| {
            let text = format!("faults_ms = 1000\n[[actions]]\nat_ms = 5\nwhat = {{ {action} }}\n");
            match toml::from_str::<Plan>(&text) {
                Ok(plan) => plan.check(3).err().unwrap_or_default(),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(wrong("client_crash = { client = 2, power_loss = true, down_ms = 1 }"), "");
        let found = wrong("client_crash = { client = 3, power_loss = true, down_ms = 1 }");
        assert_eq!(found, "there is no client 3: the run has 3, numbered from 0");
        assert!(wrong("clock_jump = { whom = { client = 7 }, by_ms = 9000000000 }").contains("no client 7"));
        assert!(wrong("slow_network = { clients = [9], link = {}, for_ms = 1 }").contains("no client 9"));
        assert_eq!(wrong("clock_jump = { by_ms = -9000000000 }"), "");
        assert_eq!(
            wrong("pause = { for_ms = 9223372036854775807 }"),
            "`for_ms = 9223372036854775807`: at most 1800000"
        );
        for rate in ["slow_network = { link = { loss = nan }, for_ms = 1 }", "resets = { rate = 2.5, for_ms = 1 }"] {
            assert!(wrong(rate).contains("a number from 0 to 1"), "{}", wrong(rate));
        }
        assert!(wrong("crashes = [{ after_us = 9223372036854775807, down_ms = 1 }]").contains("after_us"));
    }
}
