//! DescribeConfigs (32): the settings of topics and of this broker, with synonyms, types and documentation.

use std::collections::BTreeSet;

use super::config_entries::{Entry, broker_entries, topic_entries};
use super::context::Context;
use crate::metadata::validate_topic_name;
use crate::wire::ErrorCode;
use crate::wire::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use crate::wire::messages::{DescribeConfigsRequestData, DescribeConfigsResponseData, string, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

pub(super) fn handle(ctx: &Context, request: &DescribeConfigsRequestData) -> DescribeConfigsResponseData {
    // Each once: repeating a few bytes must not repeat their long answer.
    let mut seen = BTreeSet::new();
    let results = request
        .resources
        .iter()
        .filter(|resource| seen.insert((resource.resource_type, resource.resource_name.as_str())))
        .map(|resource| describe(ctx, request, resource))
        .collect();
    DescribeConfigsResponseData { results, ..DescribeConfigsResponseData::default() }
}

fn describe(
    ctx: &Context,
    request: &DescribeConfigsRequestData,
    resource: &DescribeConfigsResource,
) -> DescribeConfigsResult {
    let (error, message, entries) = match entries_of(ctx, resource) {
        Ok(entries) => (ErrorCode::None, String::new(), entries),
        Err((error, message)) => (error, message, Vec::new()),
    };
    let asked = |entry: &Entry| match &resource.configuration_keys {
        None => true,
        Some(keys) => keys.is_empty() || keys.iter().any(|key| key.as_str() == entry.name),
    };
    DescribeConfigsResult {
        error_code: error.code(),
        error_message: Some(text(&message)),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        configs: entries.into_iter().filter(asked).map(|entry| response(request, entry)).collect(),
        ..DescribeConfigsResult::default()
    }
}

fn entries_of(ctx: &Context, resource: &DescribeConfigsResource) -> Result<Vec<Entry>, (ErrorCode, String)> {
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => {
            validate_topic_name(name).map_err(|error| (ErrorCode::InvalidTopic, error.to_string()))?;
            let image = ctx.metadata.image();
            let topic = image.topic(name).ok_or((ErrorCode::UnknownTopicOrPartition, String::new()))?;
            Ok(topic_entries(&ctx.settings.topic_defaults, &topic.configs))
        }
        // The settings that apply to all brokers unless one has its own: none can be set yet.
        BROKER if name.is_empty() => Ok(Vec::new()),
        BROKER => {
            let own = ctx.settings.node_id;
            let id: i32 = name
                .parse()
                .map_err(|_| (ErrorCode::InvalidRequest, format!("Broker id must be an integer, but it is: {name}")))?;
            if id != own {
                let message = format!("Unexpected broker id, expected {own} or empty string, but received {name}");
                return Err((ErrorCode::InvalidRequest, message));
            }
            Ok(broker_entries(&ctx.settings.broker_entries))
        }
        other => Err((ErrorCode::InvalidRequest, format!("Unsupported resource type: {other}"))),
    }
}

fn response(request: &DescribeConfigsRequestData, entry: Entry) -> DescribeConfigsResourceResult {
    let synonyms = if request.include_synonyms { entry.synonyms } else { Vec::new() };
    DescribeConfigsResourceResult {
        name: string(entry.name),
        value: Some(string(&entry.value)),
        read_only: entry.read_only,
        config_source: entry.source as i8,
        is_sensitive: false,
        synonyms: synonyms
            .into_iter()
            .map(|(name, value, source)| DescribeConfigsSynonym {
                name: string(name),
                value: Some(string(&value)),
                source: source as i8,
                ..DescribeConfigsSynonym::default()
            })
            .collect(),
        config_type: entry.kind_code,
        documentation: request.include_documentation.then(|| string(entry.doc)),
        ..DescribeConfigsResourceResult::default()
    }
}
