//! What the series of classes and those of groups read alike: what one is entitled to, has been served, and waits for.

use iogate_core::stats::summary::AppNow;

use super::Value;

pub(super) fn weight(now: &AppNow) -> Option<Value> {
    now.weight.map(|weight| Value::Number(weight.into()))
}

pub(super) fn floor_bytes(now: &AppNow) -> Option<Value> {
    now.min.map(Value::Number)
}

pub(super) fn floor_requests(now: &AppNow) -> Option<Value> {
    now.min_requests.map(Value::Number)
}

pub(super) fn cap_bytes(now: &AppNow) -> Option<Value> {
    now.max.map(Value::Number)
}

pub(super) fn cap_requests(now: &AppNow) -> Option<Value> {
    now.max_requests.map(Value::Number)
}

pub(super) fn served_requests(now: &AppNow) -> Option<Value> {
    Some(Value::Number(now.served_requests))
}

pub(super) fn served_bytes(now: &AppNow) -> Option<Value> {
    Some(Value::Number(now.served_bytes))
}

pub(super) fn queued(now: &AppNow) -> Option<Value> {
    now.queued.map(|queued| Value::Number(queued.into()))
}

pub(super) fn deferred(now: &AppNow) -> Option<Value> {
    Some(Value::Number(now.deferred.into()))
}

pub(super) fn capped(now: &AppNow) -> Option<Value> {
    Some(Value::Nanoseconds(now.capped_ns))
}
