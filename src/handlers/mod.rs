//! One handler per API: the only place that maps errors to protocol codes.
