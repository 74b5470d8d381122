{{/* What a schema cannot say: values that contradict each other, or miss. All faults at once, each with what to type. */}}

{{- define "svc.checks" -}}
{{- $faults := concat
  (include "svc.checks.image" . | fromJsonArray)
  (include "svc.checks.routes" . | fromJsonArray)
  (include "svc.checks.secrets" . | fromJsonArray)
  (include "svc.checks.network" . | fromJsonArray)
  (include "svc.checks.alerts" . | fromJsonArray)
-}}
{{- range $component := include "svc.components" . | fromJsonArray -}}
{{- $faults = concat $faults (include "svc.checks.component" (dict "root" $ "component" $component) | fromJsonArray) -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n\nthese values cannot be installed:\n  - %s\n" (join "\n  - " $faults)) -}}
{{- end -}}
{{- end -}}

{{- define "svc.checks.image" -}}
{{- $faults := list -}}
{{- range $component := include "svc.components" . | fromJsonArray -}}
{{- if not (or $.Values.image.registry (index $.Values $component).image.repository) -}}
{{- $faults = append $faults (printf "there is no image for %s: type --set image.registry=<registry>/<path>" $component) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.image.tag "latest" -}}
{{- $faults = append $faults "the tag `latest` says nothing about what runs, and cannot be rolled back to: type --set image.tag=<version>" -}}
{{- end -}}
{{- if not (include "svc.components" . | fromJsonArray) -}}
{{- $faults = append $faults "nothing is enabled: type --set identity.enabled=true, session or ingest" -}}
{{- end -}}
{{- toJson $faults -}}
{{- end -}}

{{- define "svc.checks.routes" -}}
{{- $faults := list -}}
{{- $values := .Values -}}
{{- if not (regexMatch "^https?://[^/?#@]+$" $values.publicUrl) -}}
{{- $faults = append $faults (printf "publicUrl is %q, but must be an origin without a path: type --set publicUrl=https://svc.example.com" $values.publicUrl) -}}
{{- end -}}
{{- $routed := or $values.ingress.enabled $values.gateway.enabled -}}
{{- if and $values.ingress.enabled $values.gateway.enabled -}}
{{- $faults = append $faults "ingress and gateway are both enabled, but one front door is enough: type --set ingress.enabled=false, or --set gateway.enabled=false" -}}
{{- end -}}
{{- if and $routed (not $values.trustedProxies) -}}
{{- $faults = append $faults "a route needs trustedProxies, else all clients would share one limit: type --set 'trustedProxies={10.0.0.0/8}' with the network of the ingress controller's pods" -}}
{{- end -}}
{{- if and $values.gateway.enabled (not $values.gateway.parentRefs) -}}
{{- $faults = append $faults "gateway.parentRefs is empty, so the route would belong to nobody: type --set 'gateway.parentRefs[0].name=<gateway>'" -}}
{{- end -}}
{{- $host := include "svc.host" . -}}
{{- if and $values.ingress.enabled $values.ingress.host (ne $values.ingress.host $host) -}}
{{- $faults = append $faults (printf "ingress.host is %q, but publicUrl says %q: leave ingress.host out, or type --set publicUrl=https://%s" $values.ingress.host $host $values.ingress.host) -}}
{{- end -}}
{{- if and $values.gateway.enabled $values.gateway.hostnames (not (has $host $values.gateway.hostnames)) -}}
{{- $faults = append $faults (printf "gateway.hostnames has not the host of publicUrl: leave it out, or type --set 'gateway.hostnames={%s}'" $host) -}}
{{- end -}}
{{- toJson $faults -}}
{{- end -}}

{{- define "svc.checks.secrets" -}}
{{- $faults := list -}}
{{- $values := .Values -}}
{{- $namespace := .Release.Namespace -}}
{{- if not $values.secrets.existingSecret -}}
{{- $faults = append $faults (printf "secrets.existingSecret is empty: make the Secret with `kubectl --namespace %s create secret generic svc-tokens --from-literal=service-token=\"$(openssl rand -hex 32)\" --from-literal=platform-token=\"$(svc-identity platform-token)\" --from-literal=limiter-key=\"$(openssl rand -hex 32)\"`, then type --set secrets.existingSecret=svc-tokens" $namespace) -}}
{{- end -}}
{{- if and (or $values.identity.enabled $values.session.enabled) (not $values.database.existingSecret) -}}
{{- $faults = append $faults (printf "database.existingSecret is empty: make the Secret with `kubectl --namespace %s create secret generic svc-database --from-literal=identity-url=postgres://… --from-literal=identity-migrator-url=postgres://… --from-literal=session-url=postgres://… --from-literal=session-migrator-url=postgres://…`, then type --set database.existingSecret=svc-database" $namespace) -}}
{{- end -}}
{{- if not $values.nats.existingSecret -}}
{{- $faults = append $faults (printf "nats.existingSecret is empty: make the Secret with `kubectl --namespace %s create secret generic svc-nats --from-literal=identity-url=nats://identity:…@nats:4222 --from-literal=session-url=nats://session:…@nats:4222 --from-literal=ingest-url=nats://ingest:…@nats:4222`, then type --set nats.existingSecret=svc-nats" $namespace) -}}
{{- end -}}
{{- if and $values.ingest.enabled (not $values.nats.stream.maxBytes) -}}
{{- $faults = append $faults "nats.stream.maxBytes is empty: type --set nats.stream.maxBytes=20GiB, at most 80 % of the broker's volume" -}}
{{- end -}}
{{- if and $values.identity.enabled $values.mail.existingSecret $values.mail.toFiles -}}
{{- $faults = append $faults "mail.existingSecret and mail.toFiles are both set, but mails are either sent or written to files: type --set mail.toFiles=false" -}}
{{- end -}}
{{- toJson $faults -}}
{{- end -}}

{{- define "svc.checks.network" -}}
{{- $faults := list -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- if and .Values.networkPolicy.enabled $egress.enabled -}}
{{- if and (or .Values.identity.enabled .Values.session.enabled) (not $egress.database) -}}
{{- $faults = append $faults "networkPolicy.egress.database is empty, so Postgres could not be reached: give it the rules that let out to it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if not $egress.nats -}}
{{- $faults = append $faults "networkPolicy.egress.nats is empty, so NATS could not be reached: give it the rules that let out to it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if and .Values.identity.enabled .Values.mail.existingSecret (not $egress.mail) -}}
{{- $faults = append $faults "networkPolicy.egress.mail is empty, so the mail server could not be reached: give it the rules that let out to it, or type --set networkPolicy.egress.enabled=false" -}}
{{- end -}}
{{- if and .Values.monitoring.traces.endpoint (not $egress.traces) -}}
{{- $faults = append $faults "networkPolicy.egress.traces is empty, so the collector could not be reached: give it the rules that let out to it, or type --set monitoring.traces.endpoint=" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.monitoring.podMonitor.enabled (not .Values.networkPolicy.adminFrom) -}}
{{- $faults = append $faults "monitoring.podMonitor is enabled, but no peer may reach the admin port: type --set 'networkPolicy.adminFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=<namespace of Prometheus>'" -}}
{{- end -}}
{{- toJson $faults -}}
{{- end -}}

{{- define "svc.checks.alerts" -}}
{{- $faults := list -}}
{{- $known := list -}}
{{- range $path, $_ := .Files.Glob "alerts/*.yaml" -}}{{- $known = append $known (base $path | trimSuffix ".yaml") -}}{{- end -}}
{{- range .Values.monitoring.alerts.disabled -}}
{{- if not (has . $known) -}}
{{- $faults = append $faults (printf "monitoring.alerts.disabled has %s, which is no alert: they are %s" . (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end -}}

{{- define "svc.checks.component" -}}
{{- $faults := list -}}
{{- $name := .component -}}
{{- $own := index .root.Values $name -}}
{{- /* What the service itself needs after the pause: 25 s to drain, 10 s to stop; ingest up to 5 s more for publishes. */ -}}
{{- $needed := add $own.lifecycle.preStopSeconds 25 10 (ternary 5 0 (eq $name "ingest")) -}}
{{- if lt (int $own.lifecycle.terminationGracePeriodSeconds) (int $needed) -}}
{{- $faults = append $faults (printf "%s needs %d s to end, but has %d: type --set %s.lifecycle.terminationGracePeriodSeconds=%d" $name (int $needed) (int $own.lifecycle.terminationGracePeriodSeconds) $name (int $needed)) -}}
{{- end -}}
{{- if and $own.autoscaling.enabled (gt (int $own.autoscaling.minReplicas) (int $own.autoscaling.maxReplicas)) -}}
{{- $faults = append $faults (printf "%s.autoscaling.minReplicas is above maxReplicas: type --set %s.autoscaling.maxReplicas=%d" $name $name (int $own.autoscaling.minReplicas)) -}}
{{- end -}}
{{- if not (dig "limits" "memory" "" $own.resources) -}}
{{- $faults = append $faults (printf "%s has no limit of memory: type --set %s.resources.limits.memory=512Mi" $name $name) -}}
{{- end -}}
{{- concat $faults (include "svc.checks.env" . | fromJsonArray) | toJson -}}
{{- end -}}

{{- define "svc.checks.env" -}}
{{- $faults := list -}}
{{- $name := .component -}}
{{- $own := index .root.Values $name -}}
{{- $known := index (.root.Files.Get "files/variables.yaml" | fromYaml) $name -}}
{{- $taken := keys (include "svc.settings" . | fromJson) -}}
{{- range $variable, $_ := $own.env -}}
{{- if has $variable $known.secret -}}
{{- $faults = append $faults (printf "%s.env.%s is a secret, which is read from a Secret only: see database, nats and secrets" $name $variable) -}}
{{- else if has $variable $taken -}}
{{- $faults = append $faults (printf "%s.env.%s is set by a value of its own: leave it out, and see the chart's README" $name $variable) -}}
{{- else if not (has $variable $known.plain) -}}
{{- $faults = append $faults (printf "%s.env.%s is nothing that %s reads: its variables are %s" $name $variable $name (join ", " $known.plain)) -}}
{{- end -}}
{{- end -}}
{{- $taken = concat $taken (keys $own.env) -}}
{{- range include "svc.secrets" . | fromJsonArray -}}{{- $taken = append $taken (printf "%s_FILE" .variable) -}}{{- end -}}
{{- range $own.extraEnv -}}
{{- if has .name $taken -}}
{{- $faults = append $faults (printf "%s.extraEnv has %s, which is set already: take it out of extraEnv" $name .name) -}}
{{- end -}}
{{- $taken = append $taken .name -}}
{{- end -}}
{{- if and (has "SVC_SESSION_URL" $known.plain) (not (has "SVC_SESSION_URL" $taken)) -}}
{{- $faults = append $faults (printf "session is not enabled, so %s has to be told where it is: type --set %s.env.SVC_SESSION_URL=http://<service>:8081" $name $name) -}}
{{- end -}}
{{- toJson $faults -}}
{{- end -}}
