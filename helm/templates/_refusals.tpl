{{/* Refusals of values that the schema takes one by one, and that could not work together. Each names the values and what to do.
     Takes (dict "root" $ "component" "router|prefill|decode"). */}}
{{- define "baton.refuseWhatCannotRun" -}}
{{- $v := .root.Values -}}
{{- $part := .component -}}
{{- $pool := get $v $part -}}

{{- range $container := concat ($pool.extraInitContainers | default list) ($pool.extraContainers | default list) }}
{{- if has $container.name (list $part "model") }}
{{- fail (printf "%s.extraContainers or extraInitContainers has a container '%s', which is the name of one of the chart's own; give it another one" $part $container.name) }}
{{- end }}
{{- end }}

{{- $claims := list -}}
{{- range $claim := $pool.resourceClaims }}{{ $claims = append $claims $claim.name }}{{ end -}}
{{- range $claim := dig "claims" list ($pool.resources | default dict) }}
{{- if not (has $claim.name $claims) }}
{{- fail (printf "%s.resources.claims names '%s', which %s.resourceClaims does not have; it has: %s" $part $claim.name $part (join ", " $claims | default "nothing")) }}
{{- end }}
{{- end }}
{{- if and (eq (toString $pool.dnsPolicy) "None") (not (dig "nameservers" list ($pool.dnsConfig | default dict))) }}
{{- fail (printf "%s.dnsPolicy is 'None', and %s.dnsConfig.nameservers is empty: the pods could look up no name" $part $part) }}
{{- end }}
{{- end }}

{{/* The same, of what concerns no single part. Takes the root. */}}
{{- define "baton.refuseWhatCannotServe" -}}
{{- $v := .Values -}}
{{- $service := $v.service -}}
{{- if and $service.nodePort (eq $service.type "ClusterIP") }}
{{- fail (printf "service.nodePort is %d and service.type 'ClusterIP', which has none; set service.type to NodePort or LoadBalancer" (int64 $service.nodePort)) }}
{{- end }}
{{- if and $service.externalTrafficPolicy (eq $service.type "ClusterIP") }}
{{- fail (printf "service.externalTrafficPolicy is '%s' and service.type 'ClusterIP', which takes no traffic from outside; set service.type to NodePort or LoadBalancer" $service.externalTrafficPolicy) }}
{{- end }}
{{- range $key := list "loadBalancerClass" "loadBalancerSourceRanges" }}
{{- if and (get $service $key) (ne $service.type "LoadBalancer") }}
{{- fail (printf "service.%s is set and service.type is '%s', which has no load balancer; set service.type to LoadBalancer" $key $service.type) }}
{{- end }}
{{- end }}
{{- end }}
