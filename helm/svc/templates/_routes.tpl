{{/* Routes from files/routes.json, which `make gen` generates from the path table of the services. */}}

{{/* Routes of the enabled components as JSON: a list of {path, component}. Other paths go to identity, which answers 404. */}}
{{- define "svc.routes" -}}
{{- $table := .Files.Get "files/routes.json" | fromJson -}}
{{- $routes := list -}}
{{- range $table.routes -}}
{{- if (index $.Values .component).enabled -}}
{{- $routes = append $routes (dict "path" (printf "%s%s" $table.prefix .path) "component" .component) -}}
{{- end -}}
{{- end -}}
{{- if .Values.identity.enabled -}}
{{- $routes = append $routes (dict "path" "/" "component" "identity") -}}
{{- end -}}
{{- toJson $routes -}}
{{- end -}}
