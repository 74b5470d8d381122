{{/* Environment of a component: variables, and files for secrets. Names are map keys, so each is unique. */}}

{{/* Variables that the chart sets, as JSON: variable -> value. Only those that the component reads (files/variables.json). */}}
{{- define "svc.settings" -}}
{{- $values := .root.Values -}}
{{- $stream := include "svc.stream" .root | fromJson -}}
{{- $known := index (.root.Files.Get "files/variables.json" | fromJson) .component -}}
{{- $settings := dict
  "SVC_LISTEN" (printf "%s:8080" $values.listenAddress)
  "SVC_LISTEN_INTERNAL" (printf "%s:8081" $values.listenAddress)
  "SVC_LISTEN_ADMIN" (printf "%s:9090" $values.listenAddress)
  "SVC_LOG" $values.log
  "SVC_PUBLIC_URL" (include "svc.publicUrl" .root)
  "SVC_DATABASE_CONNECTIONS" $values.database.connections
  "SVC_STREAM_MODE" $stream.mode
  "SVC_STREAM_REPLICAS" $stream.replicas
  "SVC_STREAM_MAX_BYTES" $stream.maxBytes
  "SVC_STREAMS" $stream.count
  "SVC_STREAM_MAX_AGE" $stream.maxAge
  "SVC_DLQ_MAX_AGE" $stream.dlqMaxAge
  "SVC_AUDIT_MAX_AGE" $stream.auditMaxAge
  "SVC_STREAM_COMPRESSION" $stream.compression
  "SVC_NATS_DURABILITY" $stream.durability
  "SVC_WORKLOAD_IDENTITY" (ternary "on" "off" (or $values.workloadIdentity.enabled $values.operator.enabled))
  "SVC_NAMESPACE" .root.Release.Namespace
  "SVC_RELEASE" .root.Release.Name
  "SVC_CONFIRMED_RELEASES" $values.operator.confirmedReleases
  "SVC_LEASE" (include "svc.name" (dict "root" .root "component" "operator"))
-}}
{{- $managesConsumers := eq (include "svc.managesConsumers" .root) "true" -}}
{{- range $name := list "identity" "session" "ingest" -}}
{{- if and (index $values $name "enabled") (or (ne $name "ingest") $managesConsumers) -}}
{{- $_ := set $settings (printf "SVC_%s_URL" (upper $name)) (printf "http://%s-internal:8081" (include "svc.name" (dict "root" $.root "component" $name))) -}}
{{- end -}}
{{- end -}}
{{- if and $managesConsumers $values.operator.consumers.natsUrl -}}{{- $_ := set $settings "SVC_CONSUMER_NATS_URL" $values.operator.consumers.natsUrl -}}{{- end -}}
{{- if and $values.operator.enabled (or (ne .component "ingest") $managesConsumers) -}}{{- $_ := set $settings "SVC_OPERATOR" (printf "%s/%s" .root.Release.Namespace (include "svc.name" (dict "root" .root "component" "operator"))) -}}{{- end -}}
{{- with $values.operator.takeOverFrom -}}{{- $_ := set $settings "SVC_TAKE_OVER_FROM" (join "," .) -}}{{- end -}}
{{- if or $values.nats.ca.secret $values.nats.ca.configMap -}}{{- $_ := set $settings "SVC_NATS_CA_FILE" "/etc/svc/secrets/nats-tls/ca.crt" -}}{{- end -}}
{{- if get $values.nats.clientCertificates .component -}}{{- $_ := set $settings "SVC_NATS_CLIENT_CERTIFICATE" "/etc/svc/secrets/nats-tls" -}}{{- end -}}
{{- if and $values.startPage $values.identity.enabled -}}{{- $_ := set $settings "SVC_DEVICE_URL" (printf "%s/device" (include "svc.publicUrl" .root)) -}}{{- end -}}
{{- if $values.trustedProxies -}}{{- $_ := set $settings "SVC_TRUSTED_PROXIES" (join "," $values.trustedProxies) -}}{{- end -}}
{{- if $values.trustedProxyHops -}}{{- $_ := set $settings "SVC_TRUSTED_PROXY_HOPS" $values.trustedProxyHops -}}{{- end -}}
{{- with $values.monitoring.traces -}}
{{- if .endpoint -}}{{- $_ := set $settings "SVC_OTLP_ENDPOINT" .endpoint -}}{{- $_ := set $settings "SVC_OTLP_RATIO" .ratio -}}{{- end -}}
{{- end -}}
{{- if $values.mail.from -}}{{- $_ := set $settings "SVC_MAIL_FROM" $values.mail.from -}}{{- end -}}
{{- if $values.mail.toFiles -}}{{- $_ := set $settings "SVC_MAIL_DIR" "/var/lib/svc/mail" -}}{{- end -}}
{{- with $values.branding -}}
{{- $branding := dict "SVC_PRODUCT_NAME" .productName "SVC_ACCENT_COLOR" .accentColor "SVC_SUPPORT_ADDRESS" .supportAddress "SVC_APP_URL" .appUrl "SVC_LANGUAGE" .language "SVC_MAIL_COMMANDS" (ternary "" "off" .mailCommands) -}}
{{- if .logo.configMap -}}{{- $_ := set $branding "SVC_LOGO_FILE" (printf "/etc/svc/branding/%s" .logo.key) -}}
{{- with .logo.darkKey -}}{{- $_ := set $branding "SVC_LOGO_DARK_FILE" (printf "/etc/svc/branding/%s" .) -}}{{- end -}}{{- end -}}
{{- range $name, $value := $branding -}}{{- if $value -}}{{- $_ := set $settings $name $value -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $read := dict -}}
{{- range $name, $value := $settings -}}
{{- if has $name $known.plain -}}{{- $_ := set $read $name $value -}}{{- end -}}
{{- end -}}
{{- toJson $read -}}
{{- end -}}

{{/* Secrets of the component, as JSON: a list of {variable, secret, key}. */}}
{{- define "svc.secrets" -}}
{{- $values := .root.Values -}}
{{- $known := index (.root.Files.Get "files/variables.json" | fromJson) .component -}}
{{- $all := list -}}
{{- range $name := list "service-token" "platform-token" "limiter-key" "factor-key" -}}
{{- $variable := printf "SVC_%s" ($name | upper | replace "-" "_") -}}
{{- $token := include "svc.secretKey" (dict "root" $.root "purpose" "secrets" "name" ($name | camelcase | untitle)) | fromJson -}}
{{- $all = append $all (merge (dict "variable" $variable) $token) -}}
{{- end -}}
{{- if $values.mail.existingSecret -}}
{{- $all = append $all (dict "variable" "SVC_SMTP_URL" "secret" $values.mail.existingSecret "key" $values.mail.key) -}}
{{- end -}}
{{- $read := list -}}
{{- range $all -}}
{{- if has .variable $known.secret -}}{{- $read = append $read . -}}{{- end -}}
{{- end -}}
{{- toJson $read -}}
{{- end -}}

{{/* Files of a CA and a client certificate, as JSON: a list for `svc.secretVolume`; takes {ca, certificate, directory}. */}}
{{- define "svc.tlsFiles" -}}
{{- $files := list -}}
{{- $path := printf "%s/ca.crt" .directory -}}
{{- if .ca.configMap -}}{{- $files = append $files (dict "configMap" .ca.configMap "key" .ca.key "path" $path) -}}{{- end -}}
{{- if .ca.secret -}}{{- $files = append $files (dict "secret" .ca.secret "key" .ca.key "path" $path) -}}{{- end -}}
{{- range $key := ternary (list "tls.crt" "tls.key") list (ne .certificate "") -}}
{{- $files = append $files (dict "secret" $.certificate "key" $key "path" (printf "%s/%s" $.directory $key)) -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Address and credential of a role, as JSON: {files, env}. Either a Secret contains the URL, or a value is the URL and a Secret contains
     user and password. Takes {root, purpose, role, variable}. */}}
{{- define "svc.access" -}}
{{- $values := index .root.Values .purpose -}}
{{- $env := dict -}}
{{- $files := list -}}
{{- if $values.url -}}
{{- $directory := printf "%s-login" .purpose -}}
{{- $_ := set $env (printf "%s_URL" .variable) $values.url -}}
{{- $_ := set $env (printf "%s_LOGIN" .variable) (printf "/etc/svc/secrets/%s" $directory) -}}
{{- $secret := get $values.logins .role -}}
{{- range $file, $key := $values.loginKeys -}}
{{- $files = append $files (dict "secret" $secret "key" $key "path" (printf "%s/%s" $directory $file)) -}}
{{- end -}}
{{- else -}}
{{- $url := include "svc.secretKey" (dict "root" .root "purpose" .purpose "name" .role) | fromJson -}}
{{- $_ := set $env (printf "%s_URL_FILE" .variable) (printf "/etc/svc/secrets/%s/%s" $url.secret $url.key) -}}
{{- $files = append $files $url -}}
{{- end -}}
{{- toJson (dict "files" $files "env" $env) -}}
{{- end -}}

{{/* Connection of a role to Postgres, as JSON: {files, env}. The client library reads the TLS variables; parameters of the URL
     take precedence. Only identity and session have a database. */}}
{{- define "svc.database" -}}
{{- $database := .root.Values.database -}}
{{- $files := list -}}
{{- $env := dict -}}
{{- if has .component (list "identity" "session") -}}
{{- $certificate := get $database.clientCertificates .role -}}
{{- $variable := ternary "SVC_MIGRATOR_DATABASE" "SVC_DATABASE" (hasSuffix "Migrator" .role) -}}
{{- $access := include "svc.access" (dict "root" .root "purpose" "database" "role" .role "variable" $variable) | fromJson -}}
{{- $env = $access.env -}}
{{- $files = include "svc.tlsFiles" (dict "ca" $database.ca "certificate" $certificate "directory" "database-tls") | fromJsonArray | concat $access.files -}}
{{- $mode := $database.sslMode -}}
{{- if or $database.ca.secret $database.ca.configMap -}}
{{- $mode = default "verify-full" $mode -}}
{{- $_ := set $env "PGSSLROOTCERT" "/etc/svc/secrets/database-tls/ca.crt" -}}
{{- end -}}
{{- if $mode -}}{{- $_ := set $env "PGSSLMODE" $mode -}}{{- end -}}
{{- if $certificate -}}
{{- $_ := set $env "PGSSLCERT" "/etc/svc/secrets/database-tls/tls.crt" -}}
{{- $_ := set $env "PGSSLKEY" "/etc/svc/secrets/database-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "files" $files "env" $env) -}}
{{- end -}}

{{/* Connection of a component to NATS, as JSON: {files, env}. */}}
{{- define "svc.nats" -}}
{{- $nats := .root.Values.nats -}}
{{- $access := include "svc.access" (dict "root" .root "purpose" "nats" "role" .component "variable" "SVC_NATS") | fromJson -}}
{{- $env := $access.env -}}
{{- $tls := include "svc.tlsFiles" (dict "ca" $nats.ca "certificate" (get $nats.clientCertificates .component) "directory" "nats-tls") | fromJsonArray -}}
{{- $files := concat $access.files $tls -}}
{{- with get $nats.credentials .component -}}
{{- $files = append $files (dict "secret" $nats.existingSecret "key" .) -}}
{{- $_ := set $env "SVC_NATS_CREDENTIALS_FILE" (printf "/etc/svc/secrets/%s/%s" $nats.existingSecret .) -}}
{{- end -}}
{{- toJson (dict "files" $files "env" $env) -}}
{{- end -}}

{{- define "svc.env" -}}
{{- $own := index .root.Values .component -}}
{{ include "svc.plainEnv" (merge (include "svc.settings" . | fromJson) $own.env) }}
{{- if include "svc.setsCpus" $own }}
- name: SVC_CPUS
  valueFrom:
    resourceFieldRef:
      # In cores, rounded up.
      resource: requests.cpu
{{- end }}
{{- range include "svc.secrets" . | fromJsonArray }}
- name: {{ .variable }}_FILE
  value: /etc/svc/secrets/{{ .secret }}/{{ .key }}
{{- end }}
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whether the CPU request of a component sets the number of its threads. */}}
{{- define "svc.setsCpus" -}}
{{- if and (dig "requests" "cpu" "" .resources) (not (hasKey .env "SVC_CPUS")) -}}yes{{- end -}}
{{- end -}}

{{/* A map of variables as `env` of a container. JSON writes a number from 1,000,000 without an exponent; a values file contains floats.
     An `on` or `off` without quotes is a boolean in YAML, and no variable has the value `true` or `false`. */}}
{{- define "svc.plainEnv" -}}
{{- range $name, $value := . }}
{{- if kindIs "bool" $value }}{{- $value = ternary "on" "off" $value }}{{- end }}
- name: {{ $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end -}}

{{/* Volume with one file for each entry of a list of {secret or configMap, key, path}; the default of the path is <secret>/<key>. */}}
{{- define "svc.secretVolume" -}}
name: secrets
projected:
  defaultMode: 0440
  sources:
    {{- range . }}
    - {{ hasKey . "configMap" | ternary "configMap" "secret" }}:
        name: {{ default .secret .configMap | quote }}
        items:
          - key: {{ .key | quote }}
            path: {{ default (printf "%s/%s" .secret .key) .path | quote }}
    {{- end }}
{{- end -}}
