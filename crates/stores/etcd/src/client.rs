//! A connection to one member: [`Client`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::uri::PathAndQuery;
use http_body::Frame;
use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::{OnceCell, mpsc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, Done, KeyValue, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest, RangeRequest, RangeResponse,
    RequestOp, StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchOp, WatchRequest,
    WatchResponse,
};

/// The largest answer that is read. A page of records is far smaller.
const LARGEST: usize = 64 * 1024 * 1024;

const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// What etcd says of a lease that has ended.
pub(crate) const LEASE_NOT_FOUND: &str = "requested lease not found";

/// How members are connected to.
#[derive(Clone, Default)]
pub(crate) struct Connecting {
    /// How long a member has for each sign of life.
    pub(crate) timeout: Duration,
    pub(crate) login: Option<(String, String)>,
    pub(crate) tls: Option<TlsFiles>,
}

/// The contents of the files for an encrypted connection.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// A connection to one member. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    grpc: Grpc<Connection>,
    /// Whether the member must not be asked for several ranges at once, when that is known.
    one_by_one: Arc<OnceCell<bool>>,
    token: Option<MetadataValue<Ascii>>,
}

impl Client {
    /// Connects to a member and logs in.
    pub(crate) async fn connect(member: &str, how: &Connecting) -> Result<Self, Status> {
        let scheme = if how.tls.is_some() { "https" } else { "http" };
        // A connection that is cut silently is noticed by its keep-alive.
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
            .map_err(|error| Status::invalid_argument(reasons(&error)))?
            .connect_timeout(how.timeout)
            .http2_keep_alive_interval(how.timeout)
            .keep_alive_timeout(how.timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if let Some(files) = &how.tls {
            endpoint = endpoint
                .tls_config(tls(files))
                .map_err(|error| Status::invalid_argument(reasons(&error)))?;
        }
        let channel = endpoint.connect().await;
        let channel = channel.map_err(unavailable)?;
        let mut client = Self {
            one_by_one: Arc::default(),
            grpc: Grpc::new(Connection(channel.clone())).max_decoding_message_size(LARGEST),
            channel,
            token: None,
        };
        if let Some((user, password)) = &how.login
            && let Some(token) = client.authenticate(user, password).await?
        {
            let token = MetadataValue::try_from(token);
            let mut token = token.map_err(|_| Status::internal("the login is malformed"))?;
            token.set_sensitive(true);
            client.token = Some(token);
        }
        Ok(client)
    }

    /// The token of a login; `None` if the cluster asks nobody for one.
    pub(crate) async fn authenticate(
        &self,
        user: &str,
        password: &str,
    ) -> Result<Option<String>, Status> {
        let request = AuthenticateRequest {
            name: user.to_owned(),
            password: password.to_owned(),
        };
        let answer: Result<AuthenticateResponse, Status> =
            self.call("/etcdserverpb.Auth/Authenticate", request).await;
        match answer {
            Ok(answer) => Ok(Some(answer.token)),
            Err(refused)
                if refused.code() == Code::FailedPrecondition
                    && refused.message().contains("not enabled") =>
            {
                Ok(None)
            }
            Err(refused) => Err(refused),
        }
    }

    /// The connection, for requests that are not part of etcd's API.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        // A member that has lost its leader says so, instead of being silent.
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            metadata.insert("authorization", token.clone());
        }
        request
    }

    /// One call with one answer.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.unary(path, self.request(message)).await
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Request<Q>) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        until_ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(grpc.unary(request, path, codec).await?.into_inner())
    }

    /// What the member says of itself, also one that has lost its leader.
    pub(crate) async fn status(self) -> Result<StatusResponse, Status> {
        let mut request = self.request(Done {});
        request.metadata_mut().remove("hasleader");
        self.unary(STATUS, request).await
    }

    /// Makes a transaction.
    pub(crate) async fn txn(self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Reads a range of keys.
    pub(crate) async fn range(self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    /// Reads several ranges at one revision: that of the first one, or the current one.
    pub(crate) async fn read(
        self,
        ranges: Vec<RangeRequest>,
    ) -> Result<(Vec<Vec<KeyValue>>, i64), Status> {
        if ranges.len() > 1 && !self.reads_one_by_one().await? {
            let reads: Vec<_> = ranges.into_iter().map(RequestOp::read).collect();
            let answer = self.txn(TxnRequest::always(reads)).await?;
            let revision = answer.revision();
            return Ok((answer.found().collect(), revision));
        }
        let (mut found, mut at) = (Vec::with_capacity(ranges.len()), 0);
        for mut range in ranges {
            if range.revision == 0 {
                range.revision = at;
            }
            let answer = self.clone().range(range).await?;
            if at == 0 {
                at = answer.header.map_or(0, |header| header.revision);
            }
            found.push(answer.kvs);
        }
        Ok((found, at))
    }

    /// Whether the member must not be asked for several ranges at once. It is asked for its version once.
    pub(crate) async fn reads_one_by_one(&self) -> Result<bool, Status> {
        let ask = || async {
            let status: StatusResponse = self.call(STATUS, Done {}).await?;
            Ok(crashes(&status.version))
        };
        self.one_by_one.get_or_try_init(ask).await.copied()
    }

    /// A new etcd lease, which lasts so many seconds.
    pub(crate) async fn grant(self, seconds: i64) -> Result<LeaseGrantResponse, Status> {
        let request = LeaseGrantRequest { ttl: seconds };
        self.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    /// Ends etcd leases. Best effort: otherwise they end by themselves.
    pub(crate) async fn revoke(self, etcd_leases: Vec<i64>) {
        for id in etcd_leases {
            let path = "/etcdserverpb.Lease/LeaseRevoke";
            let _: Result<Done, Status> = self.call(path, LeaseRequest { id }).await;
        }
    }

    /// One keep-alive, with its answer: an open stream proves nothing.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<(), Status> {
        let request = tokio_stream::once(LeaseRequest { id });
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let mut answers: Streaming<LeaseKeepAliveResponse> = self.stream(path, request).await?;
        match answers.message().await? {
            Some(answer) if answer.ttl > 0 => Ok(()),
            Some(_) => Err(Status::not_found(LEASE_NOT_FOUND)),
            None => Err(Status::unavailable("the member closed the stream")),
        }
    }

    /// Watches these keys, until the answer is dropped.
    pub(crate) async fn watch(&self, keys: Vec<WatchCreateRequest>) -> Result<KeyWatch, Status> {
        let requests = keys.into_iter().map(|key| WatchRequest {
            request: Some(WatchOp::Create(key)),
        });
        let requests: Vec<_> = requests.collect();
        let (open, until_closed) = mpsc::channel(1);
        let requests = tokio_stream::iter(requests).chain(ReceiverStream::new(until_closed));
        let answers = self.stream("/etcdserverpb.Watch/Watch", requests).await?;
        Ok(KeyWatch {
            answers,
            _open: open,
        })
    }

    async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        until_ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answers = grpc.streaming(self.request(requests), path, codec).await?;
        Ok(answers.into_inner())
    }
}

/// Keys that are watched. The member stops when the requests end: it would go on if only the answers were dropped, for as long
/// as the connection lasts.
pub(crate) struct KeyWatch {
    answers: Streaming<WatchResponse>,
    /// No request follows. The stream of requests ends when this is dropped.
    _open: mpsc::Sender<WatchRequest>,
}

impl KeyWatch {
    /// The next answer.
    pub(crate) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        self.answers.message().await
    }
}

/// A connection whose requests end with their last frame. tonic ends each by an empty frame more, which is written, sent and
/// read by itself: a third of the writes of a small request.
#[derive(Clone)]
struct Connection(Channel);

impl GrpcService<Body> for Connection {
    type ResponseBody = Body;
    type Error = tonic::transport::Error;
    type Future = <Channel as GrpcService<Body>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        GrpcService::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let ending = |body| {
            Body::new(EndingBody {
                body,
                next: None,
                has_ended: false,
            })
        };
        GrpcService::call(&mut self.0, request.map(ending))
    }
}

/// A body that knows with its last frame that it is the last one.
struct EndingBody<B> {
    body: B,
    /// The frame after the one that was asked for, if it is there already.
    next: Option<Result<Frame<Bytes>, Status>>,
    has_ended: bool,
}

impl<B: http_body::Body<Data = Bytes, Error = Status> + Unpin> http_body::Body for EndingBody<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match self.next.take() {
            Some(next) => Some(next),
            None if self.has_ended => None,
            None => ready!(Pin::new(&mut self.body).poll_frame(context)),
        };
        self.has_ended |= frame.is_none();
        if !self.has_ended
            && let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context)
        {
            self.has_ended = next.is_none();
            self.next = next;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.next.is_none()
    }
}

/// Whether a member of this version crashes when its client goes away in the middle of a transaction that only reads:
/// etcd 3.5.0 to 3.5.4 (its issue 14110), and, if the transaction was slow, 3.5.5 and 3.5.6 (14891).
fn crashes(version: &str) -> bool {
    let patch = version.strip_prefix("3.5.").unwrap_or_default();
    let digits = patch.split(|it: char| !it.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse::<u32>().ok())
        .is_some_and(|patch| patch <= 6)
}

#[test]
fn only_some_versions_of_etcd_crash() {
    for version in ["3.5.0", "3.5.1", "3.5.6", "3.5.0-rc.1"] {
        assert!(crashes(version), "{version}");
    }
    for version in ["3.4.23", "3.5.7", "3.5.16", "3.6.0", "13.5.1", "3.50.1", ""] {
        assert!(!crashes(version), "{version}");
    }
}

async fn until_ready(grpc: &mut Grpc<Connection>) -> Result<(), Status> {
    grpc.ready().await.map_err(unavailable)
}

fn unavailable(error: tonic::transport::Error) -> Status {
    let mut status = Status::unavailable(reasons(&error));
    status.set_source(Arc::new(error));
    status
}

fn tls(files: &TlsFiles) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new();
    config = match &files.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    if let Some((cert, key)) = &files.client {
        config = config.identity(Identity::from_pem(cert, key));
    }
    config
}

/// An error with the innermost of its causes: the outer ones say no more than "transport error".
pub(crate) fn reasons(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}
