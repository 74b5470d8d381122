//! The traces that requests belong to, by which they can be followed to whoever reads the event (W3C Trace Context).

use contract::TraceContext;
use rand::TryRng as _;
use rand::rngs::SysRng;

/// A trace of its own; none where the system has no random bytes.
pub fn begin_trace() -> Option<TraceContext> {
    let mut random = [0; 24];
    SysRng.try_fill_bytes(&mut random).ok()?;
    TraceContext::begin(random)
}
