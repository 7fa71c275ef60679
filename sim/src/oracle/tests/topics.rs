//! What is said of topics.

use super::{Make, check};
use crate::history::{Created, CreationId, Topic, TopicList};

fn topic(name: &str, id: u8, partitions: i32) -> Topic {
    Topic { name: name.to_owned(), id: [id; 16], partitions }
}

impl Make {
    fn creates(&mut self, name: &str) -> CreationId {
        self.history.begin_creation(0, name, false, 0)
    }

    fn created(&mut self, topic: Topic) {
        let creation = self.creates(&topic.name);
        self.history.end_creation(creation, Created::Done(Some(topic)), 0);
    }

    fn lists(&mut self, topics: &[Topic]) {
        let (began, ended) = (self.history.stamp(0), self.history.stamp(0));
        self.history.topic_lists.push(TopicList { client: 0, began, ended, topics: topics.to_vec() });
    }
}

#[test]
fn a_topic_that_is_there_stays() {
    check(&[], |make| {
        make.lists(&[]);
        make.created(topic("a", 1, 1));
        make.created(topic("b", 2, 3));
        make.lists(&[topic("b", 2, 3), topic("a", 1, 1)]);
    });
    check(&["lost topic"], |make| {
        make.created(topic("a", 1, 1));
        make.lists(&[]);
    });
    // Listed once, though nobody was told that it was created.
    check(&["lost topic"], |make| {
        make.creates("a");
        make.lists(&[topic("a", 1, 1)]);
        make.lists(&[]);
    });
    // Whether it was created is not known, and a list that was asked for before says nothing.
    check(&[], |make| {
        make.creates("a");
        make.lists(&[]);
        let began = make.history.stamp(0);
        make.created(topic("b", 2, 1));
        let ended = make.history.stamp(0);
        make.history.topic_lists.push(TopicList { client: 0, began, ended, topics: Vec::new() });
    });
}

#[test]
fn a_topic_stays_what_it_is() {
    check(&["changed topic"], |make| {
        make.created(topic("a", 1, 1));
        make.lists(&[topic("a", 2, 1)]);
    });
    check(&["changed topic"], |make| {
        make.created(topic("a", 1, 2));
        make.lists(&[topic("a", 1, 1)]);
    });
    // That it exists was all that the client was told.
    check(&[], |make| {
        let creation = make.creates("a");
        make.history.end_creation(creation, Created::Done(None), 0);
        make.lists(&[topic("a", 1, 1)]);
    });
}

#[test]
fn what_nobody_creates_is_not_listed() {
    check(&["unasked topic"], |make| make.lists(&[topic("a", 1, 1)]));
    check(&["unasked topic"], |make| {
        make.lists(&[topic("a", 1, 1)]);
        make.creates("a");
    });
    check(&["unasked topic"], |make| {
        let creation = make.creates("a");
        make.history.end_creation(creation, Created::Failed, 0);
        make.lists(&[topic("a", 1, 1)]);
    });
    check(&["unasked topic"], |make| {
        make.history.begin_creation(0, "a", true, 0);
        make.lists(&[topic("a", 1, 1)]);
    });
}
