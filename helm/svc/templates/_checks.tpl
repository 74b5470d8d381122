{{/* Checks that a JSON schema cannot express: missing and contradictory values. Reports all errors at once, each with the value to set. */}}

{{- define "svc.checks" -}}
{{- $errors := concat
  (include "svc.checks.names" . | fromJsonArray)
  (include "svc.checks.image" . | fromJsonArray)
  (include "svc.checks.routes" . | fromJsonArray)
  (include "svc.checks.secrets" . | fromJsonArray)
  (include "svc.checks.network" . | fromJsonArray)
  (include "svc.checks.alerts" . | fromJsonArray)
  (include "svc.checks.trial" . | fromJsonArray)
  (include "svc.checks.operator" . | fromJsonArray)
-}}
{{- range $component := include "svc.processes" . | fromJsonArray -}}
{{- $errors = concat $errors (include "svc.checks.component" (dict "root" $ "component" $component) | fromJsonArray) -}}
{{- end -}}
{{- if $errors -}}
{{- fail (printf "\n\ninvalid values:\n  - %s\n" (join "\n  - " $errors)) -}}
{{- end -}}
{{- end -}}

{{- define "svc.checks.names" -}}
{{- $errors := list -}}
{{- $name := include "svc.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- $errors = append $errors (printf "the objects would have names that begin with %q, but the name of a Service begins with a letter and has only lower-case letters, digits and hyphens: type --set fullnameOverride=svc" $name) -}}
{{- end -}}
{{- $values := .Values -}}
{{- range $use := list "commonLabels" "podLabels" "migrations.podLabels" "tests.podLabels" "monitoring.podMonitor.labels" "monitoring.alerts.labels" "monitoring.dashboards.labels" -}}
{{- $labels := $values -}}
{{- range splitList "." $use -}}{{- $labels = index $labels . -}}{{- end -}}
{{- range $key, $_ := $labels -}}
{{- if or (has $key (list "helm.sh/chart" "batch.kubernetes.io/job-name")) (hasPrefix "app.kubernetes.io/" $key) -}}
{{- $errors = append $errors (printf "%s contains %s, which the chart sets: remove it" $use $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.image" -}}
{{- $errors := list -}}
{{- range $component := include "svc.processes" . | fromJsonArray -}}
{{- if not (or (include "svc.registry" $) (index $.Values $component).image.repository) -}}
{{- $errors = append $errors (printf "no image for %s: type --set image.registry=<registry>/<path>" $component) -}}
{{- end -}}
{{- end -}}
{{- if and (or (include "svc.tests.ingress" .) .Values.tests.existingSecret) (not (or (include "svc.registry" .) .Values.tests.image.repository)) -}}
{{- $errors = append $errors "no image for `helm test`: type --set image.registry=<registry>/<path>, or --set tests.image.repository=<registry>/<path>/svc" -}}
{{- end -}}
{{- if eq .Values.image.tag "latest" -}}
{{- $errors = append $errors "the tag `latest` does not identify a version, so a rollback is impossible: type --set image.tag=<version>" -}}
{{- end -}}
{{- if not (include "svc.components" . | fromJsonArray) -}}
{{- $errors = append $errors "no component is enabled: type --set identity.enabled=true, session.enabled=true or ingest.enabled=true" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.routes" -}}
{{- $errors := list -}}
{{- $values := .Values -}}
{{- $url := include "svc.publicUrl" . -}}
{{- $host := include "svc.host" . -}}
{{- if not $host -}}
{{- $errors = append $errors (printf "publicUrl is %q, but must be an origin (`https://<host>`, without a path): type --set publicUrl=https://svc.example.com" $url) -}}
{{- end -}}
{{- $routed := or $values.ingress.enabled $values.gateway.enabled -}}
{{- $named := and $routed $host -}}
{{- if and $values.ingress.enabled $values.gateway.enabled -}}
{{- $errors = append $errors "ingress and gateway are both enabled, but only one is allowed: type --set ingress.enabled=false, or --set gateway.enabled=false" -}}
{{- end -}}
{{- if and $named (hasPrefix "http://" $url) (not (regexMatch "(^|[.])(localhost|test)(:|$)" $host)) -}}
{{- /* The names of RFC 6761 for development and tests are exempt. */ -}}
{{- $errors = append $errors (printf "publicUrl is http, so passwords and tokens would be readable on the network: type --set publicUrl=https://%s" $host) -}}
{{- end -}}
{{- if and $named (regexMatch "^[0-9.]+$|:" $host) -}}
{{- $errors = append $errors (printf "the host of publicUrl is the IP address %s, but a route needs a host name: type --set publicUrl=https://svc.example.com" $host) -}}
{{- end -}}
{{- if and $named (not (regexMatch "^[0-9.]+$|:" $host)) (not (regexMatch "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.])*[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" $host)) -}}
{{- $errors = append $errors (printf "the host of publicUrl is %q, but a route needs a host name of lower-case letters, digits and hyphens: type --set publicUrl=https://svc.example.com" $host) -}}
{{- end -}}
{{- $errors = concat $errors (include "svc.checks.proxies" (dict "values" $values "routed" $routed) | fromJsonArray) -}}
{{- if and $values.gateway.enabled (not $values.gateway.parentRefs) -}}
{{- $errors = append $errors "gateway.parentRefs is empty, so no Gateway would serve the route: type --set 'gateway.parentRefs[0].name=<gateway>'" -}}
{{- end -}}
{{- if and $values.gateway.enabled $values.gateway.hostnames $host (not (has $host $values.gateway.hostnames)) -}}
{{- $errors = append $errors (printf "gateway.hostnames does not contain the host of publicUrl: remove it, or type --set 'gateway.hostnames={%s}'" $host) -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.proxies" -}}
{{- $errors := list -}}
{{- $values := .values -}}
{{- $hops := int $values.trustedProxyHops -}}
{{- $wide := list -}}
{{- range $values.trustedProxies -}}
{{- if le (splitList "/" . | last | int) (ternary 32 8 (contains ":" .)) -}}{{- $wide = append $wide . -}}{{- end -}}
{{- end -}}
{{- if and .routed (not $values.trustedProxies) (not $hops) -}}
{{- $errors = append $errors "trustedProxies is empty, so all clients would share one rate limit: type --set 'trustedProxies={10.244.7.0/24}' with the network of the ingress controller's pods, or --set trustedProxyHops=1" -}}
{{- end -}}
{{- if and $values.trustedProxies $hops -}}
{{- $errors = append $errors "trustedProxies and trustedProxyHops are both set, but only one is allowed: type --set trustedProxyHops=0" -}}
{{- end -}}
{{- if and $wide (not $values.allowWideTrustedProxies) -}}
{{- $errors = append $errors (printf "trustedProxies contains %s, where each sender could choose its client address: use the network of the ingress controller's pods, or confirm with --set allowWideTrustedProxies=true" (join ", " $wide)) -}}
{{- end -}}
{{- if and .routed (or $wide $hops) (not (and $values.networkPolicy.enabled $values.networkPolicy.publicFrom)) -}}
{{- $errors = append $errors "networkPolicy.publicFrom is empty or disabled, so any pod could choose its client address: type --set networkPolicy.enabled=true --set 'networkPolicy.publicFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=<namespace of the ingress controller>'" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.secrets" -}}
{{- $errors := list -}}
{{- $values := .Values -}}
{{- $namespace := .Release.Namespace -}}
{{- $ca := $values.database.ca -}}
{{- if and (or $ca.secret $ca.configMap) (not (has $values.database.sslMode (list "" "verify-ca" "verify-full"))) -}}
{{- $errors = append $errors (printf "database.ca has no effect with database.sslMode=%s: use verify-full or verify-ca" $values.database.sslMode) -}}
{{- end -}}
{{- if not (include "svc.trial" .) -}}
{{- if not $values.secrets.existingSecret -}}
{{- $errors = append $errors (printf "secrets.existingSecret is empty: create the Secret with `kubectl --namespace %s create secret generic svc-tokens --from-literal=service-token=\"$(openssl rand -hex 32)\" --from-literal=platform-token=\"$(svc-identity platform-token)\" --from-literal=limiter-key=\"$(openssl rand -hex 32)\" --from-literal=factor-key=\"$(openssl rand -hex 32)\"`, then type --set secrets.existingSecret=svc-tokens" $namespace) -}}
{{- end -}}
{{- if and (or $values.identity.enabled $values.session.enabled) (not $values.database.existingSecret) (not $values.database.url) -}}
{{- $errors = append $errors (printf "database.existingSecret is empty: create the Secret with `kubectl --namespace %s create secret generic svc-database --from-literal=identity-url=postgres://… --from-literal=identity-migrator-url=postgres://… --from-literal=session-url=postgres://… --from-literal=session-migrator-url=postgres://…`, then type --set database.existingSecret=svc-database; or set database.url and database.logins" $namespace) -}}
{{- end -}}
{{- if not (or $values.nats.existingSecret $values.nats.url) -}}
{{- $errors = append $errors (printf "nats.existingSecret is empty: create the Secret with `kubectl --namespace %s create secret generic svc-nats --from-literal=identity-url=nats://identity:…@nats:4222 --from-literal=session-url=nats://session:…@nats:4222 --from-literal=ingest-url=nats://ingest:…@nats:4222`, then type --set nats.existingSecret=svc-nats; or set nats.url and nats.logins" $namespace) -}}
{{- end -}}
{{- end -}}
{{- range $server := list "database" "nats" "tests" -}}
{{- if and (index $values $server).ca.secret (index $values $server).ca.configMap -}}
{{- $errors = append $errors (printf "%s.ca.secret and %s.ca.configMap are both set, but only one is allowed: type --set %s.ca.secret=" $server $server $server) -}}
{{- end -}}
{{- end -}}
{{- $uses := dict -}}
{{- range $server := list "database" "nats" -}}
{{- $own := index $values $server -}}
{{- if and $own.url $own.existingSecret -}}
{{- $errors = append $errors (printf "%s.url and %s.existingSecret are both set, but only one is allowed: type --set %s.existingSecret=" $server $server $server) -}}
{{- end -}}
{{- if contains "@" $own.url -}}
{{- $errors = append $errors (printf "%s.url contains a user or password: remove it, and set %s.logins" $server $server) -}}
{{- end -}}
{{- range $role, $secret := $own.logins -}}
{{- $component := trimSuffix "Migrator" $role -}}
{{- if and $own.url (not $secret) (index $values $component).enabled -}}
{{- $errors = append $errors (printf "%s.logins.%s is empty: type --set %s.logins.%s=<Secret with user and password>" $server $role $server $role) -}}
{{- end -}}
{{- if and $secret (not $own.url) -}}
{{- $errors = append $errors (printf "%s.logins.%s is set without %s.url: type --set %s.url=<address without user and password>" $server $role $server $server) -}}
{{- end -}}
{{- $use := printf "%s.logins.%s" $server $role -}}
{{- if and $secret (hasKey $uses $secret) -}}
{{- $errors = append $errors (printf "%s and %s are both %s: each role has its own user, so create one Secret for each" (get $uses $secret) $use $secret) -}}
{{- end -}}
{{- if $secret -}}{{- $_ := set $uses $secret $use -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $component, $key := $values.nats.credentials -}}
{{- if and $key $values.nats.url -}}
{{- $errors = append $errors (printf "nats.credentials.%s and nats.url are both set, but only one is allowed: put the URLs into the Secret that contains the `.creds` files, and type --set nats.url= --set nats.existingSecret=<Secret>; or type --set nats.credentials.%s=" $component $component) -}}
{{- end -}}
{{- end -}}
{{- range $use := list "database" "nats" "secrets" "mail" "tests" -}}
{{- with (index $values $use).existingSecret -}}
{{- if hasKey $uses . -}}
{{- $errors = append $errors (printf "%s and %s.existingSecret are both %s: create one Secret for each, so that a pod mounts only the keys that it reads, and type --set %s.existingSecret=<other>" (get $uses .) $use . $use) -}}
{{- end -}}
{{- $_ := set $uses . (printf "%s.existingSecret" $use) -}}
{{- end -}}
{{- end -}}
{{- if and (or $values.identity.enabled $values.ingest.enabled) (not (include "svc.stream" . | fromJson).maxBytes) -}}
{{- $errors = append $errors "nats.stream.maxBytes is empty: type --set nats.stream.maxBytes=20GiB, at most 75 % of `max_file_store` of a server" -}}
{{- end -}}
{{- if and $values.identity.enabled $values.mail.existingSecret $values.mail.toFiles -}}
{{- $errors = append $errors "mail.existingSecret and mail.toFiles are both set, but only one is allowed: type --set mail.toFiles=false" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.network" -}}
{{- $errors := list -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- if and .Values.networkPolicy.enabled $egress.enabled -}}
{{- if and (or .Values.identity.enabled .Values.session.enabled) (not $egress.database) -}}
{{- $errors = append $errors "networkPolicy.egress.database is empty, so Postgres would be unreachable: add egress rules for it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if not $egress.nats -}}
{{- $errors = append $errors "networkPolicy.egress.nats is empty, so NATS would be unreachable: add egress rules for it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if and .Values.identity.enabled .Values.mail.existingSecret (not $egress.mail) -}}
{{- $errors = append $errors "networkPolicy.egress.mail is empty, so the mail server would be unreachable: add egress rules for it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if and (or .Values.operator.enabled .Values.workloadIdentity.enabled) (not $egress.kubernetes) -}}
{{- $errors = append $errors "networkPolicy.egress.kubernetes is empty, so the Kubernetes API server would be unreachable: add egress rules for it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if and .Values.monitoring.traces.endpoint (not $egress.traces) -}}
{{- $errors = append $errors "networkPolicy.egress.traces is empty, so the collector would be unreachable: add egress rules for it, or type --set monitoring.traces.endpoint=" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.monitoring.podMonitor.enabled (not .Values.networkPolicy.adminFrom) -}}
{{- $errors = append $errors "monitoring.podMonitor is enabled, but no peer is allowed to reach the admin port: type --set 'networkPolicy.adminFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=<namespace of Prometheus>'" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.alerts" -}}
{{- $errors := list -}}
{{- if and .Values.monitoring.alerts.enabled (not .Values.monitoring.podMonitor.enabled) -}}
{{- $errors = append $errors "monitoring.alerts is enabled, but without metrics the alert SvcDown always fires: type --set monitoring.podMonitor.enabled=true" -}}
{{- end -}}
{{- $known := list -}}
{{- range $path, $_ := .Files.Glob "alerts/*.yaml" -}}{{- $known = append $known (base $path | trimSuffix ".yaml") -}}{{- end -}}
{{- range .Values.monitoring.alerts.disabled -}}
{{- if not (has . $known) -}}
{{- $errors = append $errors (printf "monitoring.alerts.disabled contains %s, which is not an alert: use one of %s" . (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.trial" -}}
{{- $errors := list -}}
{{- $refused := list -}}
{{- $values := .Values -}}
{{- range list "database" "nats" "secrets" -}}
{{- if (index $values .).existingSecret -}}{{- $refused = append $refused (printf "%s.existingSecret" .) -}}{{- end -}}
{{- if dig "url" "" (index $values .) -}}{{- $refused = append $refused (printf "%s.url" .) -}}{{- end -}}
{{- end -}}
{{- range $component := list "identity" "session" "ingest" -}}
{{- $own := index $values $component -}}
{{- if not $own.enabled -}}{{- $refused = append $refused (printf "%s.enabled=false" $component) -}}{{- end -}}
{{- if $own.autoscaling.enabled -}}{{- $refused = append $refused (printf "%s.autoscaling" $component) -}}{{- end -}}
{{- if gt (int $own.replicas) 2 -}}{{- $refused = append $refused (printf "%s.replicas" $component) -}}{{- end -}}
{{- end -}}
{{- if $values.ingress.tls -}}{{- $refused = append $refused "ingress.tls" -}}{{- end -}}
{{- if hasPrefix "https://" $values.publicUrl -}}{{- $refused = append $refused "publicUrl with https" -}}{{- end -}}
{{- if $values.networkPolicy.egress.enabled -}}{{- $refused = append $refused "networkPolicy.egress" -}}{{- end -}}
{{- /* The image of Postgres requires its own user. */ -}}
{{- if $values.openshift -}}{{- $refused = append $refused "openshift" -}}{{- end -}}
{{- /* Only the pods of a trial can create its schemas and streams. */ -}}
{{- if not $values.migrations.enabled -}}{{- $refused = append $refused "migrations.enabled=false" -}}{{- end -}}
{{- if ne $values.nats.stream.mode "ensure" -}}{{- $refused = append $refused "nats.stream.mode" -}}{{- end -}}
{{- /* The defaults of replicas and durability are for production. A trial replaces them. */ -}}
{{- if not (has (int $values.nats.stream.replicas) (list 1 3)) -}}{{- $refused = append $refused "nats.stream.replicas" -}}{{- end -}}
{{- if eq $values.nats.stream.durability "strict" -}}{{- $refused = append $refused "nats.stream.durability" -}}{{- end -}}
{{- range $server := list "database" "nats" -}}
{{- $own := index $values $server -}}
{{- if or $own.ca.secret $own.ca.configMap -}}{{- $refused = append $refused (printf "%s.ca" $server) -}}{{- end -}}
{{- if values $own.clientCertificates | compact -}}{{- $refused = append $refused (printf "%s.clientCertificates" $server) -}}{{- end -}}
{{- end -}}
{{- if values $values.nats.credentials | compact -}}{{- $refused = append $refused "nats.credentials" -}}{{- end -}}
{{- /* The Postgres of a trial has no TLS. */ -}}
{{- if has $values.database.sslMode (list "require" "verify-ca" "verify-full") -}}{{- $refused = append $refused "database.sslMode" -}}{{- end -}}
{{- if and $values.trial.enabled $refused -}}
{{- $errors = append $errors (printf "trial.enabled installs one pod of each component with its own Postgres, NATS and Secret, for evaluation only: remove %s, or type --set trial.enabled=false" (join ", " $refused)) -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.operator" -}}
{{- $errors := list -}}
{{- $values := .Values -}}
{{- if and $values.operator.enabled (not (and $values.identity.enabled $values.session.enabled)) -}}
{{- $errors = append $errors "operator.enabled needs identity and session in the same release, which accept its token: type --set identity.enabled=true --set session.enabled=true, or --set operator.enabled=false" -}}
{{- end -}}
{{- if and $values.operator.consumers.enabled (not (and $values.operator.enabled $values.ingest.enabled)) -}}
{{- $errors = append $errors "operator.consumers.enabled needs the operator, and ingest in the same release: type --set operator.enabled=true --set ingest.enabled=true, or --set operator.consumers.enabled=false" -}}
{{- end -}}
{{- if and $values.operator.consumers.natsUrl (not $values.operator.consumers.enabled) -}}
{{- $errors = append $errors "operator.consumers.natsUrl has no effect without consumers: type --set operator.consumers.enabled=true, or --set operator.consumers.natsUrl=" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "svc.checks.component" -}}
{{- $errors := list -}}
{{- $name := .component -}}
{{- $own := index .root.Values $name -}}
{{- if ne $name "operator" -}}
{{- /* Shutdown after the preStop sleep: 25 s to drain, 10 s to stop; ingest up to 5 s more for publishes in flight. */ -}}
{{- $needed := add $own.lifecycle.preStopSeconds 25 10 (ternary 5 0 (eq $name "ingest")) -}}
{{- if lt (int $own.lifecycle.terminationGracePeriodSeconds) (int $needed) -}}
{{- $errors = append $errors (printf "%s needs %d s to shut down, but its grace period is %d s: type --set %s.lifecycle.terminationGracePeriodSeconds=%d" $name (int $needed) (int $own.lifecycle.terminationGracePeriodSeconds) $name (int $needed)) -}}
{{- end -}}
{{- if and $own.autoscaling.enabled (gt (int $own.autoscaling.minReplicas) (int $own.autoscaling.maxReplicas)) -}}
{{- $errors = append $errors (printf "%s.autoscaling.minReplicas is greater than maxReplicas: type --set %s.autoscaling.maxReplicas=%d" $name $name (int $own.autoscaling.minReplicas)) -}}
{{- end -}}
{{- /* Without a request, a limit is also the request. */ -}}
{{- if and $own.autoscaling.enabled (not (or (dig "requests" "cpu" "" $own.resources) (dig "limits" "cpu" "" $own.resources))) -}}
{{- $errors = append $errors (printf "%s.autoscaling needs a CPU request: type --set %s.resources.requests.cpu=250m" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if not (dig "limits" "memory" "" $own.resources) -}}
{{- $errors = append $errors (printf "%s has no memory limit: type --set %s.resources.limits.memory=512Mi" $name $name) -}}
{{- end -}}
{{- /* The pods have volumes with these names, some only with other values. */ -}}
{{- range $own.extraVolumes -}}
{{- if has .name (list "secrets" "branding" "mail" "kubernetes-api") -}}
{{- $errors = append $errors (printf "%s.extraVolumes contains the volume %s, a name that the chart uses: rename it, also in extraVolumeMounts" $name .name) -}}
{{- end -}}
{{- end -}}
{{- concat $errors (include "svc.checks.env" . | fromJsonArray) | toJson -}}
{{- end -}}

{{- define "svc.checks.env" -}}
{{- $errors := list -}}
{{- $name := .component -}}
{{- $own := index .root.Values $name -}}
{{- $known := index (.root.Files.Get "files/variables.json" | fromJson) $name -}}
{{- $taken := concat (keys (include "svc.settings" . | fromJson)) (list "SVC_OPERATOR" "SVC_POD_NAME" "SVC_INGEST_URL" "SVC_CONSUMER_NATS_URL") -}}
{{- range $variable, $value := $own.env -}}
{{- if has $variable $known.secret -}}
{{- $errors = append $errors (printf "%s.env.%s is a secret and is read from a Secret only: use the values database, nats, secrets or mail" $name $variable) -}}
{{- else if has $variable $taken -}}
{{- $errors = append $errors (printf "%s.env.%s is set by another value: remove it, and see the README of the chart" $name $variable) -}}
{{- else if not (has $variable $known.plain) -}}
{{- $errors = append $errors (printf "%s.env.%s is not a variable of %s: use one of %s" $name $variable $name (join ", " $known.plain)) -}}
{{- else if and (has $variable $known.unit) (regexMatch "^[0-9.]+$" (toString $value)) -}}
{{- $errors = append $errors (printf "%s.env.%s is %v, but needs a unit, as in 30s, 48h or 64MiB" $name $variable $value) -}}
{{- end -}}
{{- end -}}
{{- $taken = concat $taken (keys $own.env) -}}
{{- if include "svc.setsCpus" $own -}}{{- $taken = append $taken "SVC_CPUS" -}}{{- end -}}
{{- $database := include "svc.database" (dict "root" .root "component" $name "role" $name) | fromJson -}}
{{- $taken = concat $taken (keys $database.env) (keys (include "svc.nats" . | fromJson).env) -}}
{{- range include "svc.secrets" . | fromJsonArray -}}{{- $taken = append $taken (printf "%s_FILE" .variable) -}}{{- end -}}
{{- range $own.extraEnv -}}
{{- if has .name $taken -}}
{{- $errors = append $errors (printf "%s.extraEnv contains %s, which is already set: remove it from extraEnv" $name .name) -}}
{{- end -}}
{{- $taken = append $taken .name -}}
{{- end -}}
{{- if and (ne $name "operator") (has "SVC_SESSION_URL" $known.plain) (not (has "SVC_SESSION_URL" $taken)) -}}
{{- $errors = append $errors (printf "session is not enabled, so %s needs its address: type --set %s.env.SVC_SESSION_URL=http://<service>:8081, and add the pods of %s to networkPolicy.internalFrom.session of the release with session" $name $name $name) -}}
{{- end -}}
{{- if and (ne $name "operator") (has "SVC_IDENTITY_URL" $known.plain) (not (has "SVC_IDENTITY_URL" $taken)) -}}
{{- $errors = append $errors (printf "identity is not enabled, so %s needs its address: type --set %s.env.SVC_IDENTITY_URL=http://<service>:8081, and add the pods of %s to networkPolicy.internalFrom.identity of the release with identity" $name $name $name) -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}
