//! `/auth/device`: device login.

use super::{Access, Answer, Header, Route, routes};
use crate::ProblemKind;
use crate::device::{
    DecideDevice, DeviceCodes, DeviceErrorResponse, DeviceRequest, DeviceSession, InspectDevice, PollDevice,
    StartDevice,
};

routes! {
    "Device login", "Let a device in that has no browser or keyboard (RFC 8628).":

    /// Ask for a device's codes
    ///
    /// The first step of RFC 8628 (section 3.1), for a device without a browser or a keyboard. Whether there is such a
    /// tenant cannot be told from the answer.
    START_DEVICE = Route::post("/auth/device/code")
        .access(&[Access::Anybody])
        .headers(&[Header::Tenant])
        .takes_form::<StartDevice>()
        .answers(&[
            Answer::json::<DeviceCodes>(200, "What to show to a person, and what to ask for the session with."),
            Answer::json::<DeviceErrorResponse>(400, "The request is at fault: `invalid_request`."),
        ])
        .problems(&[ProblemKind::DependencyUnavailable]);

    /// Ask for a device's session
    ///
    /// Repeated, with the interval in between, until somebody has decided (RFC 8628, section 3.4). Of several that ask with
    /// one code, one gets the session.
    REDEEM_DEVICE = Route::post("/auth/device/token")
        .access(&[Access::Proof])
        .takes_form::<PollDevice>()
        .answers(&[
            Answer::json::<DeviceSession>(200, "The session, as a login with a password answers it."),
            Answer::json::<DeviceErrorResponse>(400, "There is no session, or not yet; `error` says why."),
        ]);

    /// See what asks under a device's code
    ///
    /// A code of another tenant is like one that never was. After ten wrong codes within an hour, none is looked up.
    INSPECT_DEVICE = Route::post("/auth/device/inspect")
        .access(&[Access::Member])
        .takes::<InspectDevice>()
        .answers(&[Answer::json::<DeviceRequest>(200, "What asks, and from where.")])
        .problems(&[ProblemKind::Forbidden, ProblemKind::NotFound]);

    /// Let a device in, or not
    ///
    /// To let it in takes a session made with a password at most ten minutes ago.
    DECIDE_DEVICE = Route::post("/auth/device/decide")
        .access(&[Access::Member])
        .takes::<DecideDevice>()
        .answers(&[Answer::empty(204, "It is decided.")])
        .problems(&[ProblemKind::Forbidden, ProblemKind::ReauthenticationRequired, ProblemKind::NotFound]);
}
